"""Lines out of bytes: however they are cut, the same blocks' lines, positions and refusals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.codecs.base import Reason, Reject
from router.line_framer import BLOCK_BYTES, LineBlock, LineFramer, count_lines

LIMIT = 10


def frame(pieces: list[bytes], limit: int = LIMIT) -> list[tuple[int, int, bytes | None]]:
    """(line, offset, text) for every line; text is None where it was refused."""
    framer = LineFramer(limit)
    found: list[LineBlock | Reject] = []
    for piece in pieces:
        found += framer.receive(piece)
    found += framer.end()
    out: list[tuple[int, int, bytes | None]] = []
    for part in found:
        if isinstance(part, Reject):
            assert part.reason is Reason.TOO_LONG
            out.append((part.line, part.offset, None))
            continue
        assert part.data.endswith(b"\n")
        offset = part.offset
        for number, line in enumerate(part.data[:-1].split(b"\n"), part.line):
            out.append((number, offset, line))
            offset += len(line) + 1
    return out


def oracle(data: bytes) -> list[tuple[int, int, bytes | None]]:
    out: list[tuple[int, int, bytes | None]] = []
    offset = 0
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        out.append((number, offset, line if len(line) <= LIMIT else None))
        offset += len(line) + 1
    return out


@given(
    st.lists(st.binary(max_size=25) | st.just(b"\n") | st.just(b"ab\ncd\n"), max_size=12),
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
)
def test_any_cut_gives_the_lines_that_split_gives(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    pieces, at = [], 0
    while at < len(data):
        step = cuts[len(pieces) % len(cuts)]
        pieces.append(data[at : at + step])
        at += step
    assert frame(pieces) == oracle(data)
    assert frame([data]) == oracle(data)


def test_a_line_of_exactly_the_limit_passes() -> None:
    assert frame([b"x" * LIMIT + b"\n"]) == [(1, 0, b"x" * LIMIT)]
    assert frame([b"x" * LIMIT]) == [(1, 0, b"x" * LIMIT)]
    assert frame([b"x" * (LIMIT + 1) + b"\n"]) == [(1, 0, None)]
    assert frame([b"x" * (LIMIT + 1)]) == [(1, 0, None)]


def test_a_long_line_is_refused_before_it_ends() -> None:
    framer = LineFramer(LIMIT)
    assert framer.receive(b"x" * LIMIT) == []
    assert [type(part) for part in framer.receive(b"x")] == [Reject]
    for _ in range(100):
        assert framer.receive(b"x" * 1000) == []
    assert framer.receive(b"\nok\n") == [LineBlock(b"ok\n", 2, LIMIT + 1 + 100_000 + 1)]


def test_many_lines_make_blocks_of_bounded_size() -> None:
    line = b"x" * 99 + b"\n"
    blocks = LineFramer(1000).receive(line * (3 * BLOCK_BYTES // 100))
    assert all(isinstance(b, LineBlock) and len(b.data) <= BLOCK_BYTES + 1001 for b in blocks)
    assert len(blocks) >= 3


def test_counting_lines() -> None:
    for count in (0, 1, 100, 10_000):
        assert count_lines(b"ab\n" * count) == count
