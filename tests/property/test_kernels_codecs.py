"""The compiled decoders of csv and ndjson against the line by line ones: the tests of all decoders once more."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from catalog.schema import Schema
from router.codecs import CODECS
from router.codecs.base import Intake
from router.codecs.decode.csv_columns import ArrowCsv
from router.codecs.decode.ndjson_columns import Layout
from storage.compiled.compiler import is_available
from tests.property.test_codecs import (  # noqa: F401
    SCHEMA,
    good_value,
    test_any_bytes_are_refused_without_a_fault,
    test_csv_decoders_agree,
    test_ndjson_decoders_agree,
    test_there_and_back,
)

pytestmark = [
    pytest.mark.skipif(not is_available(), reason="numba is not installed: make check installs it"),
    pytest.mark.timeout(600),  # compiling takes seconds of CPU, the first time
    pytest.mark.xdist_group("kernels"),
    pytest.mark.usefixtures("compiled_kernels"),
]

PLAIN = Schema.of(b="boolean?", i="int", l="bigint?", d="double", s="string", t="timestamp", n="string?")


def rows(seed: int, times: str) -> list[list[Any]]:
    random = Random(seed)
    out = []
    for _ in range(200):
        row = [good_value(random, f.type, times) for f in PLAIN]
        row[2] = random.choice([None, random.randint(-(10**18), 10**18)])
        row[3] = round(random.uniform(-1000, 1000), random.randint(1, 9))
        row[4], row[6] = random.choice(["A", "", "\u00e9\U0001f600", "x" * random.randint(1, 70)]), None
        if random.random() < 0.5:
            row[6] = random.choice(["b", "Z" * 8, "Z" * 9])
        out.append(row)
    return out


@pytest.mark.parametrize("times", ["integer", "zoned", "plain"])
@pytest.mark.parametrize("format", ["csv", "ndjson"])
def test_the_compiled_decoders_are_really_used(format: str, times: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain rows, in several blocks, so that strings are new in one and known in the next."""
    decoder = CODECS[format].decoder(Intake(PLAIN, columnar_bytes=0))
    line_by_line = CODECS[format].decoder(Intake(PLAIN, columnar_bytes=2**40))
    head = (",".join(PLAIN.names) + "\n").encode() if format == "csv" else b""
    for i, seed in enumerate((1, 2, 1)):
        data = head * (i == 0) + b"".join(written(format, row) for row in rows(seed, times))
        expected = line_by_line.receive(data, 7)
        with monkeypatch.context() as patch:
            for owner, name in ((ArrowCsv, "decode"), (Layout, "_decode_by_words")):
                patch.setattr(owner, name, lambda *args: pytest.fail("another decoder has taken the block"))
            got = decoder.receive(data, 7)
        assert not got.rejects and not expected.rejects
        assert [r for t in got.trains for r in t.to_rows()] == [r for t in expected.trains for r in t.to_rows()]
        for train in got.trains:
            train.verify()


def written(format: str, row: list[Any]) -> bytes:
    if format == "csv":
        texts = ["" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in row]
        return (",".join(texts) + "\n").encode()
    import orjson

    return orjson.dumps(dict(zip(PLAIN.names, row, strict=True))) + b"\n"


def test_a_string_that_is_not_utf8_is_refused_and_not_learned() -> None:
    schema = Schema.of(a="bigint", s="string")
    decoder = CODECS["csv"].decoder(Intake(schema, columnar_bytes=0))
    got = decoder.receive(b"a,s\n1,good\n2,\xff\xfe\n3,good\n", 0)
    assert [r for t in got.trains for r in t.to_rows()] == [(1, "good"), (3, "good")]
    assert [r.reason for r in got.rejects] == ["invalid_utf8"]
    got = decoder.receive(b"4,good\n5,\xff\xfe\n", 0)
    assert [r for t in got.trains for r in t.to_rows()] == [(4, "good")]
