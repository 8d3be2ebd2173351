"""The protocol of numbered batches: whole, one byte at a time, cut anywhere, and with garbage in it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.client_protocol import LINE_BYTES, SessionError, SourceBatch, SourceFramer, SourceHello, encode_line

HELLO = encode_line(_hello={"source": "till-7", "epoch": 3, "ack": "disk"})


def said(reads: list[bytes | memoryview]) -> list[SourceHello | SourceBatch]:
    framer = SourceFramer(batch_bytes=10_000)
    return [found for read in reads for found in framer.receive(read)]  # type: ignore[arg-type]


@given(
    payloads=st.lists(st.binary(max_size=300), max_size=6),
    padded=st.booleans(),
    cuts=st.sets(st.integers(0, 2_500)),
    views=st.booleans(),
)
def test_batches_come_out_as_they_went_in_wherever_they_are_cut(
    payloads: list[bytes], padded: bool, cuts: set[int], views: bool
) -> None:
    stream = HELLO
    for n, payload in enumerate(payloads, 1):
        header = encode_line(_batch=n, tuples=n, bytes=len(payload))
        stream += (header[:-2] + b" " * 300 + header[-2:] if padded else header) + payload
    reads = [stream[a:b] for a, b in pairwise(sorted({0, len(stream), *(c for c in cuts if c < len(stream))}))]
    found = said([memoryview(r) for r in reads] if views else list(reads))
    assert found == [
        SourceHello("till-7", 3, "disk"),
        *(SourceBatch(n, n, payload) for n, payload in enumerate(payloads, 1)),
    ]
    assert all(type(b.payload) is bytes for b in found[1:] if isinstance(b, SourceBatch))
    assert said([bytes([b]) for b in stream]) == found


@pytest.mark.parametrize("size", [LINE_BYTES, LINE_BYTES + 1, 3 * LINE_BYTES])
@pytest.mark.parametrize("step", [1, 100, 10**6])
def test_a_line_has_an_end(size: int, step: int) -> None:
    garbage = b'{"x":"' + b"y" * size
    reads = [garbage[i : i + step] for i in range(0, len(garbage), step)]
    with pytest.raises(SessionError, match="at most"):
        said([HELLO, *reads])


@pytest.mark.parametrize("text", [b"nothing\n", b"[1]\n", b"{}\n", b'{"_batch":0,"tuples":1,"bytes":1}\n'])
def test_what_is_no_batch_is_refused(text: bytes) -> None:
    with pytest.raises(SessionError):
        said([HELLO, text])


def test_a_header_claims_no_more_tuples_than_its_bytes_can_hold() -> None:
    """The claim is counted when the batch is refused. One of 2^62 tuples made the counters overflow."""
    framer = SourceFramer(1_000)
    list(framer.receive(b'{"_hello":{"source":"a","epoch":1}}\n'))
    with pytest.raises(SessionError, match="tuples must be a whole number from 0 to 6,000"):
        list(framer.receive(b'{"_batch":1,"tuples":4611686018427387904,"bytes":5}\nabcde'))
