"""Trains to bytes: the steps that encoders share.

- ``few_rows``: a few tuples without numpy, for low latency.
- ``text``: columns to pieces of text, and ISO times.
- ``frames``: long trains through polars, whose writers release the GIL.
- ``pool_arrays``: the strings of a pool as an Arrow array, kept from train to train.
"""
