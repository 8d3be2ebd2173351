"""Bytes to trains: the steps that decoders share, and the columnar readers of the formats.

- ``draft``: a train under construction, column by column; every decoder ends there.
- ``values``: the rules for which value fits which field; columns of Python values to a train.
- ``rejects``: the rejects of one block, in a bounded number of objects.
- ``few_rows``: a few tuples without numpy, for low latency.
- ``ndjson_columns``, ``csv_columns``, ``arrow_columns``: large blocks by columns. A columnar reader gives up (None)
  wherever it might disagree with the line by line decoder, which then decodes the block.
- ``digits``: numbers and short strings out of text with 64-bit arithmetic, for all rows of a column at once.
- ``arrow_frames``: Arrow messages out of bytes, with limits that hold before memory is allocated.

The framing of lines is in ``router/line_framer``. A simple line format needs ``LineFramer``, ``make_train``, ``refuse``
and ``Rejects``.
"""
