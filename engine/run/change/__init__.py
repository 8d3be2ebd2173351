"""A change of the network while it runs: what it does to each part (``compare``), said in words and JSON (``report``),
and the move of everything that is kept from the old engine to the new one (``move``).

``compare`` and ``report`` are pure. ``move`` runs while no box runs and nothing is admitted: its caller, the daemon,
sees to that (``engine/daemon/change``).
"""
