"""The networks of ``bench promise``: kinds, each with random parameters by seed, so that nothing can be tuned to one
file.

A kind is a function from a random generator to a network. It decides the shape, and what is hard about it; the
generator decides costs, deadlines, selectivities and graphs within limits. All streams have the fields of ``SCHEMA``.
Costs are those of ``universal`` boxes, tens of microseconds, so that the clients need little of the machine; the kind
``edge`` has cheap boxes and many rows of ndjson instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Random = np.random.Generator
Document = dict[str, Any]

SCHEMA = {"ts": "timestamp", "id": "bigint", "k": "string", "v": "double", "size": "int"}
WINDOW_S = 1.0  # of every window


@dataclass(frozen=True)
class PromiseNetwork:
    """A generated network. ``document`` is a network file without ports."""

    kind: str
    seed: int
    document: Document
    mix: dict[str, float]  # by stream: its share of the rows
    format: str = "arrow"  # of the streams
    shape: str = "steady"  # of arrivals, unless the command names others
    keys: int = 20
    skew: float = 0.0  # sigma of the logarithm of v; 0: v is spread evenly from 0 to 100
    windows: dict[str, str] = field(default_factory=dict)  # by output with windows: exact or approximate
    pairs: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by output of a join: the times of both sides

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.seed}"

    def times_of(self, output: str) -> tuple[str, ...]:
        """Return the fields of an output whose latest says when a result was due."""
        return ("window_end",) if output in self.windows else self.pairs.get(output, ("ts",))


def generate(kind: str, seed: int) -> PromiseNetwork:
    """Generate the network of this kind and seed."""
    made: PromiseNetwork = KINDS[kind](np.random.default_rng([sorted(KINDS).index(kind), seed]), seed)
    return made


# -- parts -------------------------------------------------------------------------------------------------------------


def us(random: Random, low: float, high: float) -> str:
    return f"{random.uniform(low, high):.1f}us"


def ms(random: Random, low: float, high: float) -> int:
    return int(random.uniform(low, high))


def tight(random: Random) -> Document:
    """An output that may lose nothing, within some tens of milliseconds."""
    deadline = ms(random, 50, 120)
    return {"deadline": f"{deadline}ms", "dead": f"{10 * deadline}ms"}


def lossy(random: Random, low: float = 0.1, high: float = 0.6) -> Document:
    """An output of which a part may be lost, within some hundreds of milliseconds."""
    deadline = ms(random, 100, 1_000)
    return {
        "deadline": f"{deadline}ms",
        "dead": f"{ms(random, 3, 6) * deadline}ms",
        "lossy": f"{100 * random.uniform(low, high):.0f}%",
    }


def graph(random: Random) -> Document:
    """An output with a concave loss graph of random corners."""
    corner, height = random.uniform(0.2, 0.9), random.uniform(0.5, 1.0)
    height = max(height, corner)
    deadline = ms(random, 100, 2_000)
    return {
        "deadline": f"{deadline}ms",
        "dead": f"{4 * deadline}ms",
        "loss": [[1.0, 1.0], [round(corner, 3), round(float(height), 3)], [0.0, 0.0]],
    }


def stream(**more: Any) -> Document:
    return {"schema": dict(SCHEMA), "time": "ts", "overload": "shed", **more}


def network(boxes: Document, outputs: Document, streams: Document | None = None) -> Document:
    return {"engine": {"workers": 2}, "streams": streams or {"rows": stream()}, "boxes": boxes, "outputs": outputs}


def out(source: str, qos: Document) -> Document:
    return {"from": source, "qos": qos}


# -- kinds that work row by row ----------------------------------------------------------------------------------------


def edge(random: Random, seed: int) -> PromiseNetwork:
    """Cheap boxes and many rows: decoding and I/O are full, not the workers."""
    boxes, outputs = {}, {}
    for i in range(5):
        share = random.uniform(5, 30)
        boxes[f"f{i}"] = {"filter": "rows", "where": f"v < {share:.1f}"}
        outputs[f"o{i}"] = out(f"f{i}", tight(random) if i == 0 else lossy(random))
    return PromiseNetwork("edge", seed, network(boxes, outputs), {"rows": 1.0}, format="ndjson")


def dear(random: Random, seed: int) -> PromiseNetwork:
    """One dear box for an output of little worth, beside two that matter."""
    boxes = {
        "dear": {"universal": "rows", "cost": us(random, 80, 160)},
        "light": {"universal": "rows", "cost": us(random, 5, 15)},
        "some": {"filter": "rows", "where": f"v < {random.uniform(5, 40):.1f}"},
        "shown": {"universal": "some", "cost": us(random, 20, 40)},
    }
    worth = round(random.uniform(0.2, 0.4), 2)
    outputs = {
        "unimportant": out("dear", {"deadline": "1s", "dead": "5s", "loss": [[1.0, worth], [0.0, 0.0]]}),
        "quick": out("light", tight(random)),
        "seen": out("shown", lossy(random)),
    }
    return PromiseNetwork("dear", seed, network(boxes, outputs), {"rows": 1.0})


def many(random: Random, seed: int) -> PromiseNetwork:
    """Fifty outputs with random graphs, behind chains of random cost."""
    boxes, outputs = {}, {}
    for i in range(50):
        boxes[f"f{i}"] = {"filter": "rows", "where": f"v >= {(at := random.uniform(0, 92)):.1f} and v < {at + 8:.1f}"}
        boxes[f"u{i}"] = {"universal": f"f{i}", "cost": us(random, 5, 60)}
        outputs[f"o{i}"] = out(f"u{i}", graph(random) if random.random() < 0.7 else lossy(random))
    return PromiseNetwork("many", seed, network(boxes, outputs), {"rows": 1.0})


def values(random: Random, seed: int) -> PromiseNetwork:
    """Rows of skewed value: a few carry most of the worth."""
    boxes = {
        "scored": {"universal": "rows", "cost": us(random, 30, 60)},
        "ranked": {"universal": "rows", "cost": us(random, 20, 60)},
        "counted": {"universal": "rows", "cost": us(random, 5, 20)},
    }
    high = round(float(np.exp(random.uniform(1.0, 2.0))), 2)
    by_value = {"v": [[0.0, 0.02], [high, 0.3], [10 * high, 1.0]]}
    outputs = {
        "by_value": out("scored", {"deadline": "300ms", "dead": "1500ms", "value": by_value}),
        "preferred": out("ranked", lossy(random, 0.1, 0.3) | {"prefer": f"v > {high}"}),
        "all": out("counted", lossy(random)),
    }
    return PromiseNetwork(
        "values", seed, network(boxes, outputs), {"rows": 1.0}, skew=round(random.uniform(1.0, 1.8), 2)
    )


def incurable(random: Random, seed: int) -> PromiseNetwork:
    """One output that may lose nothing and that no plan can save, beside two that may lose."""
    deadline = ms(random, 100, 300)
    boxes = {
        "model": {"universal": "rows", "cost": us(random, 70, 110)},
        "cheap": {"universal": "rows", "cost": us(random, 2, 6)},
        "light": {"universal": "rows", "cost": us(random, 10, 30)},
    }
    outputs = {
        "strict": out("model", {"deadline": f"{deadline}ms", "dead": f"{10 * deadline}ms"}),
        "nearly_free": out("cheap", lossy(random)),
        "may_lose": out("light", lossy(random)),
    }
    return PromiseNetwork("incurable", seed, network(boxes, outputs), {"rows": 1.0})


def bursts(random: Random, seed: int) -> PromiseNetwork:
    """Bursts of half a second at ten times the rate between, and deadlines from tight to patient."""
    boxes = {f"u{i}": {"universal": "rows", "cost": us(random, 15, 50)} for i in range(3)}
    outputs = {
        "soon": out("u0", {"deadline": "150ms", "dead": "600ms", "lossy": f"{ms(random, 10, 40)}%"}),
        "later": out("u1", {"deadline": "600ms", "dead": "2400ms", "lossy": f"{ms(random, 10, 40)}%"}),
        "patient": out("u2", {"deadline": "2s", "dead": "8s", "lossy": f"{ms(random, 10, 40)}%"}),
    }
    return PromiseNetwork("bursts", seed, network(boxes, outputs), {"rows": 1.0}, shape="bursts")


def shared(random: Random, seed: int) -> PromiseNetwork:
    """A dear box that all outputs share, then a split and a union: a drop before the split touches every output."""
    boxes = {
        "parsed": {"universal": "rows", "cost": us(random, 15, 40)},
        "split": {"case": "parsed", "when": {"low": "v < 30", "middle": "v < 70"}, "otherwise": "high"},
        "a": {"universal": "split.low", "cost": us(random, 20, 80)},
        "b": {"universal": "split.high", "cost": us(random, 20, 80)},
        "both": {"union": ["a", "b"]},
        "c": {"universal": "split.middle", "cost": us(random, 20, 120)},
    }
    outputs = {
        "united": out("both", lossy(random)), "middle": out("c", graph(random)), "low": out("a", lossy(random)),
    }  # fmt: skip
    return PromiseNetwork("shared", seed, network(boxes, outputs), {"rows": 1.0})


def chains(random: Random, seed: int) -> PromiseNetwork:
    """Long chains with outputs along the way: a box late in a chain is the bottleneck."""
    boxes, outputs = {}, {}
    for c in "ab":
        before = "rows"
        for i in range(6):
            boxes[f"{c}{i}"] = {
                "universal": before,
                "cost": us(random, 60, 120) if i == 4 else us(random, 2, 12),
                "selectivity": round(random.uniform(0.7, 1.0), 2),
            }
            before = f"{c}{i}"
        outputs[f"{c}_early"] = out(f"{c}2", tight(random) if c == "a" else lossy(random))
        outputs[f"{c}_late"] = out(f"{c}5", lossy(random))
    return PromiseNetwork("chains", seed, network(boxes, outputs), {"rows": 1.0})


def beside(random: Random, seed: int) -> PromiseNetwork:
    """A stream that sheds beside a slow one that blocks: the second must not lose, the first must not starve it."""
    boxes = {
        "booked": {"universal": "orders", "cost": us(random, 20, 60)},
        "viewed": {"universal": "rows", "cost": us(random, 20, 60)},
        "ranked": {"universal": "rows", "cost": us(random, 20, 60)},
    }
    outputs = {
        "orders_booked": out("booked", {"deadline": "1s", "dead": "5s"}),
        "views": out("viewed", lossy(random)),
        "ranks": out("ranked", graph(random)),
    }
    streams = {"rows": stream(), "orders": stream(overload="block")}
    slow = random.uniform(0.03, 0.1)
    return PromiseNetwork("beside", seed, network(boxes, outputs, streams), {"rows": 1 - slow, "orders": slow})


# -- kinds with state --------------------------------------------------------------------------------------------------


def windows(random: Random, seed: int) -> PromiseNetwork:
    """Keyed windows, exact and approximate, beside the rows themselves."""
    select = {"n": "count(*)", "mean": "avg(v)"}
    tumbling = {"window": {"tumbling": f"{WINDOW_S:g}s"}, "by": ["k"], "select": select}
    boxes = {
        "a": {"universal": "rows", "cost": us(random, 15, 40)},
        "exact": {"aggregate": "a", **tumbling},
        "b": {"universal": "rows", "cost": us(random, 15, 40)},
        "rough": {"aggregate": "b", **tumbling, "approximate": {"confidence": "95%"}},
        "c": {"universal": "rows", "cost": us(random, 5, 20)},
    }
    qos = {"deadline": "500ms", "dead": "2s", "lossy": f"{ms(random, 20, 60)}%"}
    outputs = {
        "exact_windows": out("exact", qos),
        "rough_windows": out("rough", dict(qos)),
        "rows_out": out("c", tight(random)),
    }
    kept = {"exact_windows": "exact", "rough_windows": "approximate"}
    return PromiseNetwork("windows", seed, network(boxes, outputs), {"rows": 1.0}, windows=kept)


def join(random: Random, seed: int) -> PromiseNetwork:
    """A band join of two streams of unlike rates, and outputs before and behind it."""
    boxes = {
        "pairs": {
            "join": ["fast", "slow"], "on": "l.k = r.k", "within": f"{ms(random, 20, 60)}ms",
            "select": {"ts": "l.ts", "r_ts": "r.ts", "v": "l.v", "w": "r.v"},
        },
        "priced": {"universal": "pairs", "cost": us(random, 20, 60)},
        "fast_rows": {"universal": "fast", "cost": us(random, 5, 20)},
        "slow_rows": {"universal": "slow", "cost": us(random, 10, 40)},
        "few": {"filter": "pairs", "where": "v < 20"},
    }  # fmt: skip
    outputs = {
        "priced_pairs": out("priced", lossy(random)), "few_pairs": out("few", lossy(random)),
        "fast_out": out("fast_rows", lossy(random)), "slow_out": out("slow_rows", tight(random)),
    }  # fmt: skip
    slow = random.uniform(0.05, 0.2)
    streams = {"fast": stream(), "slow": stream()}
    mix = {"fast": 1 - slow, "slow": slow}
    pairs: dict[str, tuple[str, ...]] = dict.fromkeys(("priced_pairs", "few_pairs"), ("ts", "r_ts"))
    return PromiseNetwork("join", seed, network(boxes, outputs, streams), mix, keys=50, pairs=pairs)


KINDS: dict[str, Callable[[Random, int], PromiseNetwork]] = {
    kind.__name__: kind
    for kind in (edge, windows, join, dear, many, values, incurable, bursts, shared, chains, beside)
}  # fmt: skip
