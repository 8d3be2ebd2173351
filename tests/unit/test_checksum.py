"""Both implementations compute zlib's CRC-32, because one machine may read a folder that another has written."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from storage.checksum import crc32


@given(data=st.binary(max_size=300), before=st.integers(0, 2**32 - 1))
def test_it_is_the_one_of_zlib(data: bytes, before: int) -> None:
    assert crc32(data) == zlib.crc32(data)
    assert crc32(memoryview(data), before) == zlib.crc32(data, before)
