"""What the monitor's thread does in the daemon, and what it reads: samples, rest, losses, the edge, resident size."""
