"""``bench state``: every stateful box with more keys than memory, against the same box in memory.

``cases`` has a box of each kind, the rows that it gets, and the answer by plain numpy. ``feeder`` runs one case in a
process of its own, so that the kernel's peak of resident memory is that of the case. ``bench`` compares.
"""
