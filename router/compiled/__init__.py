"""Text to columns and columns to text by loops that numba compiles; ``storage/compiled`` says how and when.

- ``fields``: where the fields of each line are, and their numbers and times.
- ``texts``: strings to the codes of a pool, without a Python string for each value.
- ``writing``: values to cells of text, and cells to lines.

There is no numpy twin for each loop. A block that a loop does not take goes to the decoders of ``router/codecs/decode``
and they give the same train. A train that the loops do not write goes to the other writers of ``router/codecs/encode``,
which write the same bytes. That is also what happens until the loops are compiled.
"""
