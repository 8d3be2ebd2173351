"""What to give up when there is more than the machine can take."""
