"""Structure-aware mutations: messages that are nearly right, so that they get past the first check.

A message begins as a good one. Its values are replaced by hostile ones, keys vanish or come twice, and only then are
bytes changed. Everything comes from one seeded generator: a seed and a number name every message for ever.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

HOSTILE: list[Any] = [
    0, 1, -1, 2**31, 2**53 + 1, 2**61, 2**62, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, 5e-324,
    True, False, None, "", " ", "\x00", "\x1b[31m", "\ud800", "\U0010ffff", "ä" * 300, "x" * 5_000, "../../lock", "NaN",
    [], [[]], [[[[[[]]]]]], {}, {"_hello": {}}, {"a": {"b": {"c": 1}}}, "2026-01-01T00:00:00Z", "9" * 400,
]  # fmt: skip
RAW = [
    b"1e400",
    b"-",
    b"NaN",
    b"Infinity",
    b"01",
    b"{",
    b"[",
    b'"',
    b"\\",
    b'"\\ud800"',
    b"\xff",
    b"\x00",
    b"tru",
    b"1.",
    b"/**/",
]
NASTY = [
    b"\n",
    b"\r\n",
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"{" * 200,
    b"[" * 5_000,
    b'"' * 50,
    b"\x80" * 20,
    b" " * 500,
]


def mutated(random_: random.Random, message: Any, changes: int = 2) -> bytes:
    """Return a message as JSON on a line, with some values replaced and some bytes changed."""
    message = copy.deepcopy(message)
    for _ in range(random_.randrange(changes + 1)):
        message = _replaced(random_, message)
    text = json.dumps(message, ensure_ascii=random_.random() < 0.8).encode("utf-8", "surrogatepass")
    if random_.random() < 0.15:
        at = random_.randrange(len(text) + 1)
        text = text[:at] + random_.choice(RAW) + text[at:]
    return text + b"\n"


def _replaced(random_: random.Random, value: Any) -> Any:
    """Replace something below a value: a leaf, a key, or the value itself."""
    if isinstance(value, dict) and value and random_.random() < 0.85:
        key = random_.choice(list(value))
        what = random_.random()
        if what < 0.15:
            del value[key]
        elif what < 0.25:
            value[str(random_.choice(HOSTILE))[:300]] = value[key]
        else:
            value[key] = _replaced(random_, value[key])
        return value
    if isinstance(value, list) and value and random_.random() < 0.7:
        at = random_.randrange(len(value))
        value[at] = _replaced(random_, value[at])
        return value
    return copy.deepcopy(random_.choice(HOSTILE))


def damaged(random_: random.Random, data: bytes) -> bytes:
    """Change some bytes of a message: flip, cut, repeat, insert."""
    for _ in range(random_.randrange(1, 4)):
        if not data:
            return random_.choice(NASTY)
        at = random_.randrange(len(data))
        what = random_.randrange(6)
        if what == 0:
            data = data[:at] + bytes([data[at] ^ (1 << random_.randrange(8))]) + data[at + 1 :]
        elif what == 1:
            data = data[:at]
        elif what == 2:
            end = min(len(data), at + random_.randrange(1, 64))
            data = data[:end] + data[at:end] * random_.randrange(1, 4) + data[end:]
        elif what == 3:
            data = data[:at] + random_.choice(NASTY) + data[at:]
        elif what == 4:
            data = data[:at] + data[at + random_.randrange(1, 16) :]
        else:
            data = data[:at] + random_.randbytes(random_.randrange(1, 16)) + data[at:]
    return data


def chunks(random_: random.Random, data: bytes) -> list[bytes]:
    """Cut bytes as a network may: whole, in two, or in many pieces."""
    pieces = random_.choice([1, 1, 2, 3, 10])
    cuts = sorted(random_.randrange(len(data) + 1) for _ in range(pieces - 1))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)])]


def session(random_: random.Random) -> bytes:
    """Return what a sender of the client protocol sends, nearly."""
    hello: dict[str, Any] = {
        "_hello": {"source": f"s{random_.randrange(50)}", "epoch": random_.randrange(3), "ack": "disk"}
    }
    if random_.random() < 0.2:
        hello["_hello"]["auth"] = random_.choice(["Bearer x", "Basic eDp5", "Basic !", "", "Bearer " + "y" * 5_000])
    out = mutated(random_, hello, 1)
    for sequence in range(1, random_.randrange(2, 6)):
        block = b"".join(mutated(random_, row(random_), 1) for _ in range(random_.randrange(4)))
        header = {"_batch": sequence, "tuples": block.count(b"\n"), "bytes": len(block)}
        out += mutated(random_, header, 1) + block
    return out


def reader(random_: random.Random) -> bytes:
    """Return what a named reader sends, nearly."""
    out = mutated(random_, {"_hello": {"name": f"r{random_.randrange(20)}", "after": 0, "nonce": "n"}}, 1)
    for _ in range(random_.randrange(4)):
        out += mutated(random_, random_.choice([{"_ack": random_.randrange(100)}, {"_forget": True}]), 1)
    return out


def row(random_: random.Random) -> dict[str, Any]:
    return {"n": random_.randrange(1_000), "x": random_.random(), "t": "2026-01-01T00:00:00Z", "s": "text", "b": True}


def rows(random_: random.Random) -> bytes:
    return b"".join(mutated(random_, row(random_)) for _ in range(random_.randrange(1, 20)))


def csv(random_: random.Random) -> bytes:
    lines = ["n,x,t,s,b"]
    for _ in range(random_.randrange(10)):
        cells = [
            str(random_.choice(HOSTILE)) if random_.random() < 0.2 else str(cell) for cell in row(random_).values()
        ]
        quoted = [f'"{cell}"' if random_.random() < 0.2 else cell for cell in cells]
        lines.append(",".join(quoted[: random_.choice([5, 5, 5, 4, 6])]))
    return "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"


REQUESTS: list[dict[str, Any]] = [
    {"aurorad": 1, "do": "describe", "stream": "s"},
    {"aurorad": 1, "do": "offsets", "output": "o", "reader": "r"},
    {"aurorad": 1, "do": "read", "output": "o", "reader": "r", "start": 0, "end": 1},
    {"aurorad": 1, "do": "release", "output": "o", "reader": "r", "end": 1},
    {"aurorad": 1, "do": "begin", "job": "j", "stream": "s", "pace": "as_fast", "parts": 1, "rows": 1},
    {"aurorad": 1, "do": "expect", "job": "j", "parts": 1, "rows": 1},
    {"aurorad": 1, "do": "progress", "job": "j"},
    {"aurorad": 1, "do": "push", "job": "j", "partition": 0},
    {"aurorad": 1, "do": "stage", "stream": "s"},
    {"aurorad": 1, "do": "abort", "staged": ["a" * 24]},
    {"aurorad": 1, "do": "commit", "stream": "s", "query": "q", "batch": 0, "staged": []},
]


def spark(random_: random.Random) -> bytes:
    """Return a request of the Spark port, nearly, with some frames behind it."""
    out = mutated(random_, random_.choice(REQUESTS))
    for _ in range(random_.randrange(3)):
        frame = random_.randbytes(random_.randrange(64))
        size = random_.choice([len(frame), 0, 2**32 - 1, 2**31, len(frame) + 3])
        out += size.to_bytes(4, "big") + frame
    return out + mutated(random_, {"rows": 1}, 1) if random_.random() < 0.5 else out


PATHS = ["/", "/metrics", "/health", "/ready", "/api/v1/network", "/api/v1/stats", "/api/v1/dead_letters?limit=1",
         "/api/v1/tap?name=s&limit=1", "/api/v1/explain?output=o&where=n%20%3D%201", "/api/v1/drops?limit=1",
         "/api/v1/names", "/api/v1/names?kind=reader&at=o&name=r1", "/api/v1/savepoint?name=..%2Fx",
         "/%ff/..//"]  # fmt: skip
HEADERS = [
    "Content-Length: 5", "Content-Length: -1", "Content-Length: 99999999999999999999", "Transfer-Encoding: chunked",
    "Connection: close", "Expect: 100-continue", "Authorization: Basic eDp5", "Authorization: Bearer",
    "Range: bytes=0-",
    "Origin: http://evil.example", "Upgrade: websocket", "Accept: application/openmetrics-text", "X: " + "y" * 9_000,
    "X-Forwarded-For: 10.0.0.1",
]  # fmt: skip
METHODS = ["GET", "GET", "GET", "POST", "DELETE", "PUT", "OPTIONS", "HEAD", "TRACE", "BREW", "get"]


def http(random_: random.Random) -> bytes:
    """Return a request over HTTP, nearly."""
    path = random_.choice(PATHS)
    if random_.random() < 0.4:
        path = damaged(random_, path.encode()).decode("latin-1").replace("\n", "%0a")
    headers = [f"Host: {random_.choice(['localhost', '127.0.0.1', 'evil.example', '[::1', '', 'a' * 300])}"]
    headers += random_.sample(HEADERS, random_.randrange(4))
    head = f"{random_.choice(METHODS)} {path} HTTP/{random_.choice(['1.1', '1.1', '1.0', '2.0', '9'])}\r\n"
    data = (head + "\r\n".join(headers) + "\r\n\r\n").encode("latin-1", "replace") + random_.choice(
        [b"", b"hello", b"0\r\n\r\n"]
    )
    return damaged(random_, data) if random_.random() < 0.3 else data
