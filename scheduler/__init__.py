"""Who runs next: what the scheduler knows, how it decides, and the thread that does what was decided."""
