"""Kernel factories of the operators and of CAST: each takes nodes and makes a node for exactly their types.

- ``pools``, ``combinations``: functions of strings, computed once for each distinct value of a train.
- ``arithmetic``, ``compare``, ``logic``, ``membership``: ``+ - * / % div``, ``= <> < > <= >= <=>``, AND OR NOT IS,
  IN and BETWEEN.
- ``casts``: CAST and TRY_CAST; ``text_values`` reads and writes one value as text.

A kernel builds on ``tree`` and on other kernels, never on ``functions``.
"""
