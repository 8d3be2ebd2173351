"""A sender of numbered batches that spends as little CPU as it can.

    python -m engine.lab.bench.sockets.batch_sender PORT FORMAT ACK TUPLES COUNT WINDOW

The sender encodes its batches before it reads the start word from standard input; afterwards it makes only headers. It
answers with one JSON line: the tuples, the seconds from the first byte to the last acknowledgement, and the quantiles
of the time from a batch to its acknowledgement.
"""

from __future__ import annotations

import socket
import sys
import time
from collections import deque

import numpy as np
import orjson

from engine.lab.bench import workload

DISTINCT = 4


def talk(port: int, format: str, ack: str, tuples: int, count: int, window: int) -> None:
    data = [workload.columns(tuples, seed) for seed in range(DISTINCT)]
    is_arrow = format == "arrow"
    payloads = [workload.arrow_bytes(d, tuples, 1) if is_arrow else workload.ndjson_bytes(d) for d in data]
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = s.makefile("rb")
        hello = {"source": f"bench-{time.monotonic_ns()}", "epoch": 1, "ack": ack}
        s.sendall(orjson.dumps({"_hello": hello}) + b"\n")
        answers.readline()
        print(orjson.dumps({"ready": True}).decode(), flush=True)
        sys.stdin.readline()
        sent: deque[float] = deque()
        waits: list[float] = []
        begun = time.perf_counter()
        acknowledged = 0
        for sequence in range(1, count + 1):
            payload = payloads[sequence % DISTINCT]
            header = b'{"_batch":%d,"tuples":%d,"bytes":%d}\n' % (sequence, tuples, len(payload))
            s.sendall(header + payload)
            sent.append(time.perf_counter())
            while sequence - acknowledged >= window or (sequence == count and acknowledged < count):
                said = orjson.loads(answers.readline())
                now = time.perf_counter()
                while acknowledged < said["_ack"]:
                    waits.append(now - sent.popleft())
                    acknowledged += 1
        seconds = time.perf_counter() - begun
    quantiles = np.quantile(waits, [0.5, 0.99]).tolist()
    answer = {"tuples": tuples * count, "seconds": seconds, "p50_s": quantiles[0], "p99_s": quantiles[1]}
    print(orjson.dumps(answer).decode(), flush=True)


if __name__ == "__main__":
    port, format, ack, tuples, count, window = sys.argv[1:]
    talk(int(port), format, ack, int(tuples), int(count), int(window))
