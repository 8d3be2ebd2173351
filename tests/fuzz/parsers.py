"""The parsers in this process: bytes in, messages or a typed error out. No other error may leave them.

Where a parser takes its bytes in pieces, the pieces must not matter: a second one gets the same bytes cut elsewhere.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa

from catalog.build import build_network
from catalog.errors import AuroraError, NetworkError
from catalog.schema import Field, Schema
from engine.operators.boxes import box_kinds
from router.access.tcp_door import LoginFramer
from router.client_protocol import ReaderFramer, SessionError, SourceFramer
from router.codecs import CODECS
from router.codecs.base import Intake
from router.spark.daemon.request import PortRequest
from router.spark.wire.peer import PortError, _parse
from tests.fuzz import grammar

SCHEMA = Schema(
    tuple(
        Field.parse(name, kind)
        for name, kind in {"n": "bigint", "x": "double?", "t": "timestamp?", "s": "string?", "b": "boolean?"}.items()
    )
)


class Parser(NamedTuple):
    """``make`` writes a message that is nearly right. ``parse`` parses any bytes: an error that leaves it is a finding.
    Its generator decides nothing but where the bytes are cut."""

    make: Callable[[random.Random], bytes]
    parse: Callable[[random.Random, bytes], None]
    modules: tuple[str, ...]  # whose branches guide ``guided.py``

    def throw(self, random_: random.Random) -> None:
        """Make one message and parse it."""
        data = self.make(random_)
        self.parse(random_, grammar.damaged(random_, data) if random_.random() < 0.5 else data)


def source_session(random_: random.Random, data: bytes) -> None:
    _framed(random_, data, lambda: SourceFramer(1024**2))


def reader_session(random_: random.Random, data: bytes) -> None:
    _framed(random_, data, ReaderFramer)


def _framed(random_: random.Random, data: bytes, make: Callable[[], Any]) -> None:
    found = []
    for pieces in ([data], grammar.chunks(random_, data)):
        framer, messages, error = make(), [], ""
        try:
            for piece in pieces:
                messages += list(framer.receive(piece))
        except SessionError as refused:
            error = str(refused)
        found.append((messages, error))
    assert found[0][1] == found[1][1], "how the bytes were cut changed the error"
    assert found[0][1] or found[0][0] == found[1][0], "how the bytes were cut changed the messages"


def _login_words(random_: random.Random) -> bytes:
    return random_.choice([b"AUTH Bearer token\n", b"AUTH Basic eDp5\n", b"AUTH \n", grammar.session(random_)])


def login(random_: random.Random, data: bytes) -> None:
    whole = LoginFramer().receive(data)
    framer, found = LoginFramer(), None
    for piece in grammar.chunks(random_, data):
        found = framer.receive(piece)
        if found is not None:
            break
    if whole is not None and whole.credentials is not None:
        assert found is not None and found.credentials == whole.credentials, "how the bytes were cut changed the login"


def ndjson(random_: random.Random, data: bytes) -> None:
    _decoded(random_, "ndjson", data)


def csv(random_: random.Random, data: bytes) -> None:
    _decoded(random_, "csv", data)


def arrow(random_: random.Random, data: bytes) -> None:
    _decoded(random_, "arrow", data)


def arrow_message(random_: random.Random) -> bytes:
    return grammar.damaged(random_, _arrow_stream())


@cache
def _arrow_stream() -> bytes:
    columns = {"n": pa.array([1, 2, 3]), "x": pa.array([0.5, None, 1.0]), "s": pa.array(["a", None, "ccc"])}
    columns |= {"t": pa.array([1, None, 3], pa.timestamp("ns", "UTC")), "b": pa.array([True, None, False])}
    table, out = pa.table(columns).select(["n", "x", "t", "s", "b"]), io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
        writer.write_table(table)
    return out.getvalue()


def _decoded(random_: random.Random, format: str, data: bytes) -> None:
    decoder = CODECS[format].decoder(Intake(SCHEMA, line_bytes=64 * 1024, batch_bytes=1024**2))
    good = bad = 0
    received = []
    for piece in grammar.chunks(random_, data):
        received.append(decoder.receive(piece, 0))
        if received[-1].fatal:
            break
    else:
        received.append(decoder.end(0))
    for part in received:
        for train in part.trains:
            train.verify()
            good += train.count
        bad += sum(reject.tuples for reject in part.rejects)
    assert decoder.received == good + bad, f"{decoder.received} rows came, {good} are good and {bad} refused"


def _request(random_: random.Random) -> bytes:
    return grammar.mutated(random_, random_.choice(grammar.REQUESTS))


def port_request(_: random.Random, data: bytes) -> None:
    line = data.split(b"\n")[0]
    try:
        request = PortRequest(_parse(line))
        for key in ("do", "stream", "output", "reader", "job", "pace", "token"):
            request.text(key, "").encode()
        for key in ("start", "end", "rows", "parts", "batch", "partition"):
            request.number(key, 0)
        request.texts("staged")
    except PortError:
        return


NETWORK = """engine: {workers: 2}
http: {listen: 127.0.0.1:9400, hosts: [a]}
access: {users: {a: {token: 0123456789abcdef, publish: ["*"]}}}
streams: {s: {schema: {n: bigint, t: timestamp}, time: t, slack: 1s, source: {tcp: 127.0.0.1:9401}, overload: block}}
boxes:
  f: {filter: s, where: "n > 1"}
  w: {aggregate: f, window: {tumbling: 1s}, select: {c: count(*)}}
outputs: {o: {from: w, qos: {deadline: 1s}, sink: {tcp: 127.0.0.1:9402}}}
"""


def network_file(_: random.Random, data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        build_network(text if "\n" in text else text + "\n", box_kinds(), {})
    except (NetworkError, AuroraError) as error:
        str(error).encode("utf-8", "surrogatepass")


CODEC_PARTS = ("router.codecs", "router.line_framer")
TARGETS: dict[str, Parser] = {
    "client protocol, sender": Parser(grammar.session, source_session, ("router.client_protocol",)),
    "client protocol, reader": Parser(grammar.reader, reader_session, ("router.client_protocol",)),
    "login": Parser(_login_words, login, ("router.access",)),
    "ndjson": Parser(grammar.rows, ndjson, CODEC_PARTS),
    "csv": Parser(grammar.csv, csv, CODEC_PARTS),
    "arrow": Parser(arrow_message, arrow, CODEC_PARTS),
    "spark request": Parser(_request, port_request, ("router.spark.wire", "router.spark.daemon.request")),
    "network file": Parser(
        lambda random_: grammar.damaged(random_, NETWORK.encode()), network_file, ("catalog", "engine.operators.boxes")
    ),
}
