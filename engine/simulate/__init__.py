"""The simulator: the scheduler of the daemon under a virtual clock, with simulated workers and seeded arrivals."""
