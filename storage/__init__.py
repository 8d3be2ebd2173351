"""Tuples at rest: trains, string pools, the queues of the arcs and the budget over them."""
