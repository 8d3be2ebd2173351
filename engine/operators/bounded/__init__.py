"""State within the memory budget: limits, eviction, and state that is larger than its memory.

- ``limits``: the limits in the network file.
- ``box``: a ``BoundedBox`` stands before a box with a state by key. While the state fits it only passes calls on. At
  the limit it does what the file says: ``spill``, ``evict`` or ``block``.
- ``divided``: a state in parts by the hash of the key, most of them on disk.
- ``partition``: one part. ``waiting``: the tuples that wait for it.
- ``hashing``: the hash of a key.

Nothing here knows windows or joins. A box answers the questions of ``boxes/keyed.py``, and its state goes to disk in
the form of its checkpoint.
"""
