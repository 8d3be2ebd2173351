"""The results that are due without loss, to the tuple: the sample runs through the network once, without a daemon.

Every tuple of the sample gets its row number as arrival time, and arrival times travel with tuples. So each result
names its input row, and the results due in any part of the schedule are a difference of two running sums. That is true
of boxes that work row by row. A network with windows or joins is judged by a run at half the knee instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.network import Network, Output, Stream
from engine.lab.bench.overload.arrivals import ArrivalShape
from engine.lab.bench.overload.tuple_worth import worth_of, worths
from engine.run.core import Engine
from engine.simulate.sample_tuples import as_train
from load_shedder.decide.values import OTHERS_WORTH
from storage.train import Train

Floats = npt.NDArray[np.float64]
TICK_S = 0.01
TICKS_PER_BIN = 10
WAIT_S = 120.0


def is_row_wise(network: Network) -> bool:
    return all(node.box.row_wise for node in network.boxes)


class ResultSums:
    """By output: the number and the value of the results of the first n tuples of a stream's sample."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.tuples: dict[str, Floats] = {}
        self.value: dict[str, Floats] = {}
        self.worths: dict[str, list[Floats]] = {}  # of each result, in any order


def result_sums(network: Network, stream: Stream, sample: Path) -> ResultSums:
    """Run the whole sample of one stream through the network."""
    train = read_train(stream, sample)
    found = ResultSums(train.count)
    counts = {o.name: np.zeros((2, train.count)) for o in network.outputs}

    def outlet(output: Output) -> Callable[[Train], None]:
        def take(out: Train) -> None:
            columns = {f.name: out.to_pylist(i) for i, f in enumerate(out.schema)} if worth is not None else {}
            each = worths(worth, out.count, columns)
            np.add.at(counts[output.name][0], out.arrival_ns, 1.0)
            np.add.at(counts[output.name][1], out.arrival_ns, each)
            found.worths.setdefault(output.name, []).append(each)

        worth = worth_of(output, OTHERS_WORTH)
        return take

    engine = Engine(network, [outlet(o) for o in network.outputs], policy="round_robin")
    engine.start()
    try:
        engine.ingress.admit(stream.number, train)
        assert engine.drain(WAIT_S), "the engine did not drain the sample"
    finally:
        engine.stop()
    for name, (tuples, value) in counts.items():
        found.tuples[name], found.value[name] = _running(tuples), _running(value)
    return found


def _running(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


def read_train(stream: Stream, sample: Path) -> Train:
    with pa.OSFile(str(sample), "rb") as file:
        return as_train(stream, pa.ipc.open_file(file).get_batch(0))


def due(
    all_sums: Mapping[str, ResultSums], per_s: Mapping[str, float], shape: ArrivalShape, output: str, of_value: bool
) -> Floats:
    """Compute the results (or their value) due in each tenth of a second, by the same arithmetic as the sender."""
    ticks = round(shape.seconds / TICK_S)
    factors = np.array([shape.factor(i * TICK_S) for i in range(ticks)])
    total = np.zeros(ticks // TICKS_PER_BIN)
    for name, found in all_sums.items():
        sent = np.floor(np.cumsum(per_s[name] * factors * TICK_S) + 1e-9)[TICKS_PER_BIN - 1 :: TICKS_PER_BIN]
        running = (found.value if of_value else found.tuples)[output]
        cycles, rest = np.divmod(sent.astype(np.int64), found.rows)
        until = cycles * running[-1] + running[rest]
        total += np.diff(np.concatenate([[0.0], until[: len(total)]]))
    return total


def total_due(all_sums: Mapping[str, ResultSums], sent: Mapping[str, int], output: str) -> int:
    """Count the results of the tuples that were ``sent`` of each stream."""
    total = 0.0
    for name, found in all_sums.items():
        cycles, rest = divmod(sent[name], found.rows)
        running = found.tuples[output]
        total += cycles * float(running[-1]) + float(running[rest])
    return round(total)
