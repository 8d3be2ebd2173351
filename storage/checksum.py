"""CRC-32 for everything on disk, with zlib's polynomial.

For a train of 10,000 tuples (240 kB) zlib needs 55 us, about as long as the write itself; ISA-L, which uses the
processor's CRC instructions, needs 5 us. Both compute the same number, so either can read a folder that the other has
written. A platform without a wheel of ISA-L uses zlib.

Refused: CRC-32C, which processors support even better; it would make existing files unreadable.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:  # a platform without a wheel
    from zlib import crc32

__all__ = ["crc32"]
