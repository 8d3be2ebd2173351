"""Trains to bytes: the steps that encoders share.

- ``few_rows``: a few tuples without numpy, for low latency.
- ``text``: columns to pieces of text, and ISO times.
- ``line_writer``: all but short trains by compiled loops, where numba is installed.
- ``frames``: long trains through polars, whose writers release the GIL.
- ``pool_arrays``: the strings of a pool as an Arrow array, kept from train to train.
"""
