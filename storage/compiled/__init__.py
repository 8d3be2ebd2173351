"""Compiled kernels: loops over columns that numpy cannot express in one pass, compiled by numba.

A kernel is a pair. Its **twin** is numpy, always there, and the definition of the answer. Its **loop** is plain Python
over the same arrays, which numba compiles to machine code that runs without the GIL. Both work on the same state and
give the same answer to the last bit, so one takes the other's place between any two calls.

- ``kernel``: a pair, and the one of the two that runs now.
- ``compiler``: compiles kernels in the background, and keeps the machine code on disk.

The loops are in ``engine/operators/compiled`` (keys and groups) and ``router/compiled`` (text to columns).

Rules:

- Nothing waits for the compiler. A kernel runs its twin until its loop is compiled, which its five hundredth call asks
  for. So a network compiles only what it uses, and a short run nothing. A second start finds the machine code on disk.
- numba is optional (``pip install 'aurorad[fast]'``). It takes 208 MB of disk, 110 MB of memory and up to 0.4 s to
  import: a network of filters should not pay that. Without it every answer is the same.
- A loop that does not compile, or meets a type that it was not compiled for, is reported once, and its twin runs on.
- numba, because its source is Python and a user's machine needs no compiler. Refused: Cython and cffi (wheels for each
  platform, a compiler to build them), numexpr (no hash, no groups).
- Tests run each loop against its twin (``tests/property/test_kernels.py``).
"""
