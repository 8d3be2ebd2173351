"""NEXMark: queries over an auction site's streams of persons, auctions and bids (``bench nexmark``).

Tucker, Tufte, Papadimos and Maier published the benchmark ("NEXMark: a benchmark for queries over data streams", 2002);
Apache Beam and Flink extended it. ``generator`` makes the events in the published proportions, ``queries`` has the
queries as network files, ``sql_answers`` as SQL over the whole batch. ``run_query`` runs one in an engine; ``bench``
measures.
"""
