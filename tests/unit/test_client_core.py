"""The protocols of the Python client without a socket: whole, one byte at a time, over several connections."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from aurorad_client import LostBatchesError, ProtocolError, RefusedError, StalledError, UnreachableError
from aurorad_client.events import Acknowledged, BatchRefused, DeliveredRows, NewEpoch, Welcomed
from aurorad_client.patience import LONGEST_PAUSE_SECONDS, AckDeadline, Backoff, Endpoint
from aurorad_client.reader_protocol import PlainProtocol, ReaderProtocol
from aurorad_client.rows import decode, encode
from aurorad_client.sender_protocol import SenderProtocol

NONCE = "5f1c"
WELCOME = b'{"_welcome":{"nonce":"5f1c","after":4}}\n'
SPLITS: list[Callable[[bytes], list[bytes]]] = [lambda b: [b], lambda b: [b[i : i + 1] for i in range(len(b))]]


def line(**content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def feed(protocol: Any, reads: list[bytes]) -> list[Any]:
    events = []
    for read in reads:
        protocol.receive_data(read)
        while (event := protocol.next_event()) is not None:
            events.append(event)
    return events


def sender(ack: str = "disk", sequence: int = 0, **more: Any) -> SenderProtocol:
    protocol = SenderProtocol("till", 1, ack, "ndjson")
    assert json.loads(protocol.connect(NONCE)) == {
        "_hello": {"source": "till", "epoch": 1, "ack": ack, "format": "ndjson"}
    }
    assert feed(protocol, [line(_welcome={"sequence": sequence, "ack": ack, **more})]) == [Welcomed()]
    return protocol


def sent(protocol: SenderProtocol) -> list[int]:
    numbers = []
    while (data := protocol.next_batch()) is not None:
        header, _, block = data.partition(b"\n")
        said = json.loads(header)
        assert said["bytes"] == len(block) and said["tuples"] == block.count(b"\n")
        numbers.append(said["_batch"])
    return numbers


def reason(batch: int, row: int) -> dict[str, Any]:
    return {"batch": batch, "line": row + 1, "offset": 0, "reason": "wrong_type", "message": "no", "tuples": 1}


# -- sender ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
def test_batches_are_kept_until_they_are_acknowledged_and_go_out_again_after_a_break(split: Any) -> None:
    protocol = sender()
    for n in range(4):
        protocol.add([{"a": n}])
    assert sent(protocol) == [1, 2, 3, 4] and sent(protocol) == []
    assert feed(protocol, split(line(_ack=2, on="disk"))) == [Acknowledged(2)]
    protocol.connect(NONCE)
    feed(protocol, split(line(_welcome={"sequence": 3, "ack": "disk"})))
    assert protocol.acknowledged == 3 and sent(protocol) == [4]


def test_a_batch_above_the_servers_limit_is_refused_before_it_is_numbered() -> None:
    protocol = sender(batch_bytes=20)
    with pytest.raises(ValueError, match="above the server's limit of 20"):
        protocol.add([{"a": "x" * 30}])
    protocol.add([{"a": 1}])
    assert sent(protocol) == [1]


def test_a_sender_that_resumes_numbers_behind_what_the_server_has() -> None:
    protocol = sender(sequence=7)
    assert protocol.resumed_at == 7
    protocol.add([{"a": 1}])
    assert protocol.last == 8 and sent(protocol) == [8]


def test_a_refused_batch_goes_out_again_with_its_reason_kept() -> None:
    protocol = sender()
    for n in range(3):
        protocol.add([{"a": n}])
    sent(protocol)
    said = line(_refused=2, reason="the disk is full", expected=2) + line(_refused=3, reason="gap", expected=2)
    assert feed(protocol, [line(_ack=1), said]) == [Acknowledged(1), *[BatchRefused("the disk is full")] * 2]
    assert protocol.refusal == "the disk is full" and sent(protocol) == [2, 3]
    feed(protocol, [line(_ack=3)])
    assert protocol.refusal == ""


def test_refused_rows_are_counted_once_also_when_an_answer_was_lost() -> None:
    protocol = sender()
    for _ in range(3):
        protocol.add([{"a": "x"}, {"a": 1}])
    sent(protocol)
    feed(protocol, [line(_ack=1, rejected=1, reasons=[reason(1, 0)])])
    protocol.connect(NONCE)  # the acknowledgement of batch 2 was lost; the welcome repeats batch 1's reason
    feed(protocol, [line(_welcome={"sequence": 2, "rejected": 2, "reasons": [reason(1, 0), reason(2, 0)]})])
    feed(protocol, [line(_ack=3, rejected=3, reasons=[reason(3, 0)])])
    assert protocol.rejected == 3 and protocol.has_new_rejects
    receipt = protocol.receipt()
    assert (receipt.acknowledged, receipt.rejected) == (3, 3)
    assert [(r.batch, r.row, r.reason) for r in receipt.reasons] == [(n, 0, "wrong_type") for n in (1, 2, 3)]
    assert protocol.receipt()[1:] == (0, ()) and not protocol.has_new_rejects


def test_refused_rows_of_a_former_sender_and_a_restart_of_the_server_do_not_count() -> None:
    protocol = sender(sequence=5, rejected=9, reasons=[reason(5, 0)])
    assert protocol.rejected == 0
    protocol.connect(NONCE)
    feed(protocol, [line(_welcome={"sequence": 5})])  # the server has restarted: its total begins at 0
    protocol.add([{"a": "x"}])
    sent(protocol)
    feed(protocol, [line(_ack=6, rejected=1, reasons=[reason(6, 0)])])
    assert protocol.rejected == 1 and protocol.receipt().reasons[0].batch == 6


def test_a_server_that_forgot_what_it_had_in_memory_gets_the_rest_renumbered() -> None:
    protocol = sender("memory")
    for n in range(3):
        protocol.add([{"a": n}])
    sent(protocol)
    feed(protocol, [line(_ack=2, on="memory")])
    protocol.connect(NONCE)
    assert feed(protocol, [line(_welcome={"sequence": 0, "ack": "memory"})]) == [NewEpoch()]
    assert json.loads(protocol.connect(NONCE))["_hello"]["epoch"] == 2
    feed(protocol, [line(_welcome={"sequence": 0, "ack": "memory"})])
    data = protocol.next_batch()
    assert data is not None and data.endswith(b'{"a":2}\n') and protocol.last == 1


def test_a_server_that_forgot_what_was_on_disk_is_an_error() -> None:
    protocol = sender()
    protocol.add([{"a": 1}])
    feed(protocol, [line(_ack=1)])
    protocol.connect(NONCE)
    with pytest.raises(LostBatchesError):
        feed(protocol, [line(_welcome={"sequence": 0, "ack": "disk"})])


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n", b"[1]\n", b"7" * 70_000, b'{"symbol":"A"}\n'])
def test_a_sender_at_a_strange_port_says_so(said: bytes) -> None:
    protocol = SenderProtocol("till", 1, "disk", "ndjson")
    protocol.connect(NONCE)
    with pytest.raises(ProtocolError):
        feed(protocol, [said])


def test_the_servers_reason_is_the_error() -> None:
    protocol = SenderProtocol("till", 1, "disk", "ndjson")
    protocol.connect(NONCE)
    with pytest.raises(RefusedError, match=r"needs engine\.data_dir"):
        feed(protocol, [line(_error="needs engine.data_dir")])


# -- reader ------------------------------------------------------------------------------------------------------------


def batch(first: int, rows: list[dict[str, Any]], **more: Any) -> bytes:
    block = b"".join(line(**row) for row in rows)
    return line(_batch=first, tuples=len(rows), bytes=len(block), **more) + block


@pytest.mark.parametrize("split", SPLITS)
def test_a_reader_skips_to_its_welcome_and_gets_numbered_batches(split: Any) -> None:
    protocol = ReaderProtocol("billing", None, "ndjson")
    assert json.loads(protocol.connect(NONCE)) == {"_hello": {"name": "billing", "nonce": NONCE, "format": "ndjson"}}
    stream = b'{"row":"of a plain reader"}\n{"_welcome":{"nonce":"other"' + WELCOME
    stream += (
        batch(5, [{"a": 1}, {"a": "é\u2028"}]) + line(_gap={"from": 7, "to": 9}) + batch(10, [{"a": 3}], repeat=True)
    )
    assert feed(protocol, split(stream)) == [
        Welcomed(),
        DeliveredRows(5, 6, [{"a": 1}, {"a": "é\u2028"}], False, 0),
        DeliveredRows(10, 10, [{"a": 3}], True, 3),
    ]
    assert protocol.after == 10 and protocol.after_welcome() == b""
    assert protocol.ack(6) == b'{"_ack":6}\n' and protocol.after_welcome() == b'{"_ack":6}\n'
    assert json.loads(protocol.connect(NONCE))["_hello"]["after"] == 10


def test_a_reader_that_the_server_refuses_has_the_reason_behind_rows_and_blocks() -> None:
    for before in (b"", b'{"a":1}\n', b"\xff\xff\x00arrow", b'{"_error":"a row of the output"}\n{"a":1}\n'):
        protocol = ReaderProtocol("billing", None, "ndjson")
        protocol.connect(NONCE)
        assert feed(protocol, [before + line(_error="a named reader needs engine.data_dir")]) == []
        with pytest.raises(RefusedError, match=r"needs engine\.data_dir"):
            protocol.receive_end()


@pytest.mark.parametrize("last", [b"", b'{"a":1}\n', b'{"_error":"cut', b'{"_error":1,"b":2}\n'])
def test_an_end_without_a_reason_is_no_refusal(last: bytes) -> None:
    protocol = ReaderProtocol("billing", None, "ndjson")
    protocol.connect(NONCE)
    feed(protocol, [last])
    protocol.receive_end()


def test_a_reader_at_a_port_of_http_says_so() -> None:
    protocol = ReaderProtocol("billing", None, "ndjson")
    protocol.connect(NONCE)
    feed(protocol, [b"HTTP/1.1 400 Bad Request\r\n\r\n"])
    with pytest.raises(ProtocolError, match="HTTP"):
        protocol.receive_end()


def test_the_bytes_before_a_welcome_are_not_kept() -> None:
    protocol = ReaderProtocol("billing", None, "ndjson")
    protocol.connect(NONCE)
    for _ in range(100):
        feed(protocol, [b"x" * 100_000])
    assert len(protocol._received._data) < 3_000_000
    assert feed(protocol, [WELCOME]) == [Welcomed()]


@pytest.mark.parametrize("split", SPLITS)
def test_a_plain_reader_gets_rows_and_the_gaps_before_them(split: Any) -> None:
    protocol = PlainProtocol()
    assert protocol.connect(NONCE) == b""
    events = feed(protocol, split(b'{"a":1}\n{"a":2}\n{"_gap":7}\n{"a":3}\n{"a":'))
    assert events[0] == Welcomed()
    assert [row for e in events[1:] for row in e.rows] == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert sum(e.missing for e in events[1:]) == 7 and protocol.after == 3
    with pytest.raises(ProtocolError):
        feed(protocol, [b"nonsense\n"])


# -- rows, patience ----------------------------------------------------------------------------------------------------


def test_rows_there_and_back_and_the_types_that_json_lacks() -> None:
    when = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    block, count = encode(
        [{"t": when, "d": Decimal("1.5"), "n": np.int32(3), "f": np.float64(0.5)}, {"s": "a\nb"}], "ndjson"
    )
    assert count == 2
    assert decode(block, "ndjson") == [{"t": "2026-01-01T12:00:00+00:00", "d": 1.5, "n": 3, "f": 0.5}, {"s": "a\nb"}]
    assert encode([], "ndjson") == (b"", 0) and decode(b"", "ndjson") == []


@pytest.mark.parametrize("rows", [{"a": 1}, "text", [1], [{"a": object()}], [{"a": {1, 2}}]])
def test_what_is_no_row_is_refused_at_once(rows: Any) -> None:
    with pytest.raises(TypeError):
        encode(rows, "ndjson")


def test_pauses_grow_to_a_second_and_end_with_the_reason() -> None:
    backoff = Backoff(Endpoint("h", 1, 60.0), 0.0)
    pauses = [backoff.pause_s(1.0, OSError("no route")) for _ in range(12)]
    assert 0.01 <= pauses[0] <= 0.02 and 0.5 <= pauses[-1] <= LONGEST_PAUSE_SECONDS
    assert backoff.pause_s(59.9999, OSError()) < 0.001
    with pytest.raises(UnreachableError, match=r"h:1 .* 60 s: no route"):
        backoff.pause_s(60.0, OSError("no route"))


def test_progress_counts_from_the_last_acknowledgement() -> None:
    progress = AckDeadline(10.0, 0, 0.0)
    progress.check(0, "", 9.9)
    progress.check(1, "", 11.0)
    assert progress.left_s(12.0) == 9.0
    with pytest.raises(StalledError, match="10 s: the disk is full"):
        progress.check(1, "the disk is full", 21.0)
