"""What crosses between the processes: messages, their encoding at both ends, and errors."""
