"""Boxes with two inputs, join and resample: conditions, sides, pairs. ``engine/operators/state`` holds their rows.

- ``on``: the text of ``on`` becomes equality keys, which are looked up, and the residual, which is computed;
  ``within``.
- ``side``: the definition of one input: which fields are kept, its key, its time.
- ``held``: the rows of both inputs, by key and time.
- ``pairs``: pairs of rows become trains.

A train searches the time index of the other side. The cost does not grow with the number of keys, only with the
logarithm of the rows in the band. Refused: waiting for the watermark before joining, because every result would be late
by the slack.
"""
