"""The daemon as a process of its system: start, signals, exit codes, log lines, descriptors, the I/O thread."""
