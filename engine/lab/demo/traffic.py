"""The feed: ``python -m engine.lab.demo.traffic HOST TRADES_PORT QUOTES_PORT TUPLES_PER_S SEED``.

Twenty times a second the feed sends the trades and quotes since the last time. When the daemon exerts back-pressure,
the sends block, and the market stands still meanwhile: the feed builds no backlog. SIGTERM, SIGINT and a daemon that
has closed its ports end it with exit code 0.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from types import FrameType

from engine.simulate.market import Bursts, Market

TICK_S = 0.05
LONGEST_STEP_S = 0.25  # of market time after a stall, so that no flood follows it
CONNECT_SECONDS = 30.0


def connect(host: str, port: int) -> socket.socket:
    """Connect, and retry until the daemon listens."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection((host, port), timeout=None)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def send_for_ever(trades: socket.socket, quotes: socket.socket, per_s: float, seed: int) -> None:
    market, bursts = Market(seed), Bursts(seed)
    begun_s = last_s = time.monotonic()
    while True:
        time.sleep(max(0.0, last_s + TICK_S - time.monotonic()))
        now_s = time.monotonic()
        elapsed_s, last_s = min(now_s - last_s, LONGEST_STEP_S), now_s
        # Each stream gets half of the rate.
        for stream, lines in zip(
            (trades, quotes),
            market.step(time.time_ns(), elapsed_s, per_s / 2, bursts.factor(now_s - begun_s)),
            strict=True,
        ):
            stream.sendall(lines)


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def main(host: str, trades_port: int, quotes_port: int, per_s: float, seed: int) -> None:
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    with connect(host, trades_port) as trades, connect(host, quotes_port) as quotes:
        try:
            send_for_ever(trades, quotes, per_s, seed)
        except (BrokenPipeError, ConnectionResetError):
            sys.exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
