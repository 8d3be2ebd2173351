"""NEXMark: an auction site's stream of persons, auctions and bids, and questions about it that others asked before.

The benchmark was published by Tucker, Tufte, Papadimos and Maier ("NEXMark: a benchmark for queries over data streams",
2002) and carried on by Apache Beam and Flink. ``generator`` makes the events by the published proportions, ``queries``
states the questions as network files and ``answers`` as SQL over the whole batch; ``run`` puts an engine around one.
"""
