"""Apply a shed plan: one mask for each arc with drops, and the limits that act without a plan."""
