"""State: the parts from which every box builds what it remembers between trains.

- ``keys``: numbers for keys. A key is any number of fields; equal keys get one small number, and columns indexed by
  that number hold what a box knows of the key.
- ``strings``: the strings of a state, in a pool of its own, because the pools of streams come and go.
- ``rows``: whole tuples, as columns that grow at their end.
- ``time_index``: rows by time, and by key and time: which rows of this key lie in this band, which have expired.
- ``chunk``: what a time index is made of: rows in order of time, sorted by key on demand.
- ``timed_rows``: rows together with their time index.
- ``last_times``: the last event time of each key, forgotten when the watermark has passed it.
- ``order``: rows of a train by key, running maxima, sortable integers.
- ``hash_index``, ``direct_table``, ``distinct``, ``columns``: what these are made of.

Rules that hold for all of them:

- Work is done on whole columns. A train costs a fixed number of numpy calls, however many keys there are.
- NULL, NaN and signed zeros are keys as in SQL's GROUP BY: NULL is one key (a join asks for none instead), all NaNs are
  one, 0.0 and -0.0 are one.
- A part forgets by mark and sweep: its owner names what is still in use (``keep``), and the part closes the gaps and
  keeps the order of the rest. The owner asks ``is_wasteful`` first, so that sweeping costs a constant share of the work
  that filled the part. Refused: a reference count for each number, which the windows had: it costs two scattered
  additions for each group, needs free lists, and gives numbers whose order means nothing.
- ``nbytes`` counts everything that grows; ``snapshot`` gives plain data (arrays, lists, strings) for a checkpoint.
- The worker that runs a box owns its state, while it runs the box. Nothing here is locked.

A box with keys and without event time, here every second tuple of each symbol (``tests/unit/test_state_example.py``
runs it; ``train`` has the symbols A B A A B A):

    >>> keys, seen = group_keys([train.schema["symbol"]]), np.zeros(START, np.int64)  # the state: tuples by key
    >>> by_key = ByKey(keys.numbers([vector_at(train, train.schema.index("symbol"))], train.count))
    >>> seen = fitted(seen, keys.count, 0)  # there may be new keys
    >>> kept = np.sort(by_key.order[(seen.take(by_key.keys) + by_key.ranks()) % 2 == 1])  # rows of the train
    >>> seen += np.bincount(by_key.keys, minlength=seen.shape[0])
    >>> train.take(kept).to_rows()
    [('A', 3), ('B', 5), ('A', 6)]
    >>> numbers = np.flatnonzero(seen)  # a snapshot has the keys and, in the same order, what is known of them
    >>> snapshot = {"keys": keys.snapshot(numbers), "seen": seen.take(numbers)}
    >>> keys, seen = group_keys([train.schema["symbol"]]), np.zeros(START, np.int64)  # and back
    >>> numbers = keys.restore(snapshot["keys"])
    >>> seen = fitted(seen, keys.count, 0)
    >>> seen[numbers] = snapshot["seen"]

``dedup.py`` and ``latest.py`` are the models for keys with event time (``last_times``), which forget silent keys.
"""
