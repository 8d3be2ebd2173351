"""Doing what a shed plan says: masks on arcs, what is missing behind them, and the book of what was given up and why.

``load_shedder`` decides and knows the picks; here they meet the network: ``values`` (what a tuple is worth on an arc),
``book`` (what windowed boxes must know of tuples that are missing), ``arc`` (one arc's drops), ``shedding`` (the plan
in force), ``ring`` (the plans that were).
"""
