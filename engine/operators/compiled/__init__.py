"""The loops over keys and groups that numba compiles; ``storage/compiled`` says how and when.

- ``hashing``: the hash index of keys: find, insert, distinct rows. Their twins are in ``engine/operators/state``.
- ``searching``: where in a chunk of rows a key reaches a time.
- ``folding``: rows into the cells of groups: count, sum, min, max.
"""
