"""``bench rules``: many filters on one stream, each for one value of the same column, as rules for single devices are.

The baseline is a loop by hand: a numpy comparison and a gather for each rule. The fewer tuples of a train match, the
more a lookup of all constants at once saves (``engine/run/constant_index.py``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from catalog.schema import Schema
from engine.lab.bench.chain import Countdown
from engine.lab.bench.harness import BenchError, Options, interleave
from engine.lab.bench.report import Result
from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.run.tuning import tune_process
from storage.strings import StringPool
from storage.train import Train, constant_ns

RULES = 1_000
TRAIN_TUPLES = 10_000
DISTINCT_TRAINS = 8
REPEATS = (8, 1)  # of the trains, for the two numbers of devices: a run must be longer than its start
DEVICES = (1_000_000, 10_000)
"""Devices that send. Of a train, 10 and 1,000 tuples are from a device with a rule."""
WAIT_SECONDS = 120.0


def network_text() -> str:
    boxes = "".join(f'  r{i}: {{filter: s, where: "device = {i * 7}"}}\n' for i in range(RULES))
    outputs = "".join(f"  o{i}: {{from: r{i}}}\n" for i in range(RULES))
    schema = "device: bigint, symbol: string, price: double, size: int"
    return (
        f"engine: {{workers: 1, memory: 1GiB, share: false}}\nstreams: {{s: {{schema: {{{schema}}}}}}}\n"
        f"boxes:\n{boxes}outputs:\n{outputs}"
    )


def make_trains(schema: Schema, devices: int) -> list[Train]:
    random = np.random.default_rng(1)
    pool = StringPool([f"SYM{i}" for i in range(24)])
    trains = []
    for _ in range(DISTINCT_TRAINS):
        columns = (
            random.integers(0, devices, TRAIN_TUPLES, np.int64),
            random.integers(0, 24, TRAIN_TUPLES, np.int32),
            random.random(TRAIN_TUPLES),
            random.integers(0, 1_000, TRAIN_TUPLES, np.int32),
        )
        trains.append(Train(schema, columns, constant_ns(0, TRAIN_TUPLES), pools=(None, pool, None, None)))
    return trains


def bare_run(trains: Sequence[Train]) -> float:
    begun = time.perf_counter()
    for train in trains:
        columns = train.columns
        device = columns[0]
        for rule in range(RULES):
            index = np.flatnonzero(device == rule * 7)
            if index.shape[0]:
                [column.take(index) for column in columns]
    return sum(t.count for t in trains) / (time.perf_counter() - begun)


def compare(devices: int, repeats: int, options: Options) -> Result:
    network = read_network(network_text(), {})
    finish = Countdown(RULES)
    outlets = [partial(finish.outlet, number) for number in range(RULES)]
    engine = Engine(network, outlets, workers=1, memory_bytes=1 << 30)
    trains = make_trains(network.streams[0].schema, devices) * repeats
    expected = [sum(int(np.count_nonzero(t.columns[0] == rule * 7)) for t in trains) for rule in range(RULES)]

    def run() -> float:
        finish.expect(expected)
        begun = time.perf_counter()
        for train in trains:
            engine.ingress.admit(0, train)
        if not finish.done.wait(WAIT_SECONDS):
            raise BenchError(f"{sum(finish.left)} tuples are missing after {WAIT_SECONDS:g} s")
        return sum(t.count for t in trains) / (time.perf_counter() - begun)

    engine.start()
    try:
        run()
        rates = interleave({"bare": lambda: bare_run(trains), "engine": run}, options.rounds)
    finally:
        engine.stop()
    case = f"rules={RULES},devices={devices}"
    at_least = 10.0 if devices == DEVICES[0] else None
    return Result.of_rounds(
        "rules", case, "tuples_per_s", rates["engine"], rates["bare"], "in memory", at_least=at_least
    )


def run(options: Options) -> Iterator[Result]:
    tune_process()
    for devices, repeats in zip(DEVICES, REPEATS, strict=True):
        yield compare(devices, repeats, options)
