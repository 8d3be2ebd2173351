"""What boxes remember of tuples: which key, at what time, which row. For join and resample, dedup, latest and top.

- ``keys``: a key (any fields) becomes a small number, exactly, a column at a time; numbers that nothing holds any more
  are taken back;
- ``rows``: the tuples themselves, as growing columns in order of arrival, so that what waits is copied once;
- ``index``: which rows have this key and a time in this band: chunks in order of time, merged as they grow, each
  searched for a whole train at once;
- ``on``: from the text of ``on`` to equality keys and the rest; ``within``;
- ``pairs``: from pairs of rows to trains;
- ``side``: one input of a box with two, with all of this together.

Nothing here costs more when there are more keys: a train looks only at the chunks, and those grow with the logarithm of
the rows in the band. Refused: a dict from key to list of rows (a Python step per tuple), one sorted array (an insertion
moves all of it), and waiting for the watermark before joining (every result would be late by the slack).
"""
