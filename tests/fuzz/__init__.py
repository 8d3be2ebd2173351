"""Fuzzers for everything that reads bytes of strangers. ``python -m tests.fuzz`` runs them all and prints a table."""
