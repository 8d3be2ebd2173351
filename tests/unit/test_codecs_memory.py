"""What codecs keep in memory: dictionaries of a connection, escaped strings of a pool, the size of a pool."""

from __future__ import annotations

import subprocess
import sys

import orjson
import pyarrow as pa
import pyarrow.ipc as pa_ipc
from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import Schema
from router.codecs import CODECS
from router.codecs.arrow import ArrowDecoder
from router.codecs.base import Intake, Reason, Strings, pool_bytes
from router.codecs.ndjson import _json_strings

MIB = 2**20


def test_all_dictionaries_of_a_connection_together_have_the_limit_of_a_message() -> None:
    names = [f"s{n}" for n in range(4)]
    intake = Intake(Schema.of(**dict.fromkeys(names, "string")), batch_bytes=100_000)
    words = pa.array([f"{n}" * 4_000 for n in range(8)])
    column = pa.DictionaryArray.from_arrays(pa.array(range(8), pa.int32()), words)

    def stream(columns: int) -> bytes:
        batch = pa.record_batch([column] * columns, names=names[:columns])
        sink = pa.BufferOutputStream()
        with pa_ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue().to_pybytes())

    few = Intake(Schema.of(**dict.fromkeys(names[:3], "string")), batch_bytes=100_000)
    decoder = ArrowDecoder(few)
    received = decoder.receive(stream(3), 1)
    assert [t.count for t in received.trains] == [8] and 96_000 <= decoder.kept_bytes <= 100_000
    decoder = ArrowDecoder(intake)
    refused = decoder.receive(stream(4), 1)
    assert [r.reason for r in refused.rejects] == [Reason.TOO_LONG] and "dictionaries" in refused.rejects[0].message


def test_a_message_counts_as_unfinished_until_its_last_byte() -> None:
    batch = pa.record_batch([pa.array(range(1_000))], names=["n"])
    sink = pa.BufferOutputStream()
    with pa_ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    decoder = ArrowDecoder(Intake(Schema.of(n="bigint")))
    decoder.receive(data[:-20], 1)
    assert decoder.unfinished_bytes > 7_900
    decoder.receive(data[-20:], 1)
    assert decoder.unfinished_bytes == 0
    rows = CODECS["ndjson"].decoder(Intake(Schema.of(n="bigint")))
    rows.receive(b'{"n": 1}\n{"n":', 1)
    assert rows.unfinished_bytes == 5
    rows.receive(b" 2}\n", 1)
    assert rows.unfinished_bytes == 0


@given(st.lists(st.text(alphabet=st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from('",\n \\\t[]')))))
def test_strings_escaped_together_are_those_escaped_one_by_one(strings: list[str]) -> None:
    assert _json_strings(strings).tolist() == [orjson.dumps(text) for text in strings]


def test_an_escaped_string_takes_no_more_than_it_has() -> None:
    """One by one each kept a buffer of a kilobyte and more: 80,000 of them took 300 MB."""
    program = (
        "from router.codecs.ndjson import _json_strings\n"
        "size = lambda: int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "texts = [f'{n}-' + 'w' * 60 for n in range(80_000)]\n"
        "before = size(); table = _json_strings(texts); print(size() - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60 * MIB


def test_a_small_budget_has_small_pools() -> None:
    assert [pool_bytes(n * MIB) // MIB for n in (8, 32, 64, 256, 512, 4_096)] == [1, 2, 4, 16, 32, 32]
    strings = Strings(pool_bytes(16 * MIB))
    first, _ = strings.intern([["x" * 600_000, "y" * 600_000]])
    second, _ = strings.intern([["z"]])
    assert first is not second, "the first has its size; a train that waits keeps the whole of it"
