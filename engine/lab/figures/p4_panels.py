"""The panels that most figures of P4 share: missed deadlines and processor use of the policies over lambda.

Points are means over two draws of queries and arrivals. BTS and ATS are compared by their means over all loads at which
deadlines are missed; at each load a percentage point of room is allowed.
"""

from __future__ import annotations

from dataclasses import replace

from engine.lab.figures.figure import Check, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import DeadlineSetup, ideal, load, run

POLICIES = ("TAAT", "BTS", "BTS1", "ATS", "ATS1")
RATES = (0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
SEEDS = (1, 2)
ROOM = 0.01
BUSY = 0.985  # of the time counts as always; the rest is the gap before the first batches


def over_rates(
    lab: Lab, queries: int, selectivity: float | None, quick: tuple[float, ...]
) -> list[dict[str, list[DeadlineSetup]]]:
    """List by lambda and policy the runs whose mean is a point."""
    base = DeadlineSetup("", 0.0, queries, selectivity, simulated=lab.choose(50, 10))
    seeds = lab.choose(SEEDS, (1,))
    return [
        {p: [replace(base, policy=p, rate=rate, seed=seed) for seed in seeds] for p in POLICIES}
        for rate in lab.choose(RATES, quick)
    ]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def sdmr(lab: Lab, queries: int, selectivity: float | None, quick: tuple[float, ...]) -> FigureData:
    shown = [p for p in POLICIES if p != "BTS1" or not lab.quick]  # which the verdict does not judge
    curves: dict[str, list[tuple[float, float]]] = {p: [] for p in (*shown, "ideal")}
    runs = over_rates(lab, queries, selectivity, quick)
    loads = []
    for number, by_policy in enumerate(runs):
        lab.progress(number / len(runs))
        setups = by_policy["TAAT"]
        rate = setups[0].rate
        for policy in shown:
            curves[policy].append((rate, mean([run(s).sdmr for s in by_policy[policy]])))
        curves["ideal"].append((rate, mean([ideal(s) for s in setups])))
        loads.append((rate, mean([load(s) for s in setups])))
    numbers = {f"load of the operators at lambda {rate:g}": value for rate, value in loads}
    return FigureData((Panel("lambda", "SDMR", curves, dashed=("ideal",)),), numbers)


def sdmr_verdict(measured: FigureData) -> FigureVerdict:
    taat, bts, ats, ats1, best = (measured.curve(p) for p in ("TAAT", "BTS", "ATS", "ATS1", "ideal"))
    missed = [x for x in bts if bts[x] > 0]
    gains = [bts[x] - ats[x] for x in missed]
    gain = mean(gains) if gains else 0.0
    gain1 = [ats[x] - ats1[x] for x in missed]
    far = (
        {name: mean([curve[x] - best[x] for x in missed]) for name, curve in (("BTS", bts), ("ATS", ats))}
        if missed
        else {}
    )
    last = max(bts)
    return FigureVerdict(
        (
            Check(
                all(taat[x] > bts[x] for x in bts),
                f"TAAT misses {min(taat[x] - bts[x] for x in bts):.0%} more at least",
            ),
            Check(
                gain > 0 and min(gains) >= -ROOM,
                f"ATS misses {gain * 100:.1f} points less than BTS on average ({span(gains)})",
            ),
            Check(bool(gain1) and min(gain1) > 0, f"ATS1 {mean(gain1) * 100:.1f} points less than ATS ({span(gain1)})"),
            Check(far["ATS"] <= far["BTS"], f"ATS is {far['ATS']:.2f} from the ideal, BTS {far['BTS']:.2f}"),
        ),
        "sdmr",
        ats[last],
        bts[last],
    )


def span(gains: list[float]) -> str:
    return f"{min(gains) * 100:.1f} to {max(gains) * 100:.1f}"


def cpu(lab: Lab, queries: int, selectivity: float | None, quick: tuple[float, ...]) -> FigureData:
    shown = ("TAAT", "BTS", "ATS")
    curves: dict[str, list[tuple[float, float]]] = {p: [] for p in (*shown, "ideal")}
    runs = over_rates(lab, queries, selectivity, quick)
    for number, by_policy in enumerate(runs):
        lab.progress(number / len(runs))
        rate = by_policy["TAAT"][0].rate
        for policy in shown:
            curves[policy].append((rate, mean([run(s).cpu for s in by_policy[policy]])))
        curves["ideal"].append((rate, mean([min(1.0, load(s)) for s in by_policy["TAAT"]])))
    return FigureData((Panel("lambda", "share of the processor", curves, dashed=("ideal",)),))


def cpu_verdict(measured: FigureData) -> FigureVerdict:
    taat, bts, ats = (measured.curve(p) for p in ("TAAT", "BTS", "ATS"))
    free = [x for x in bts if bts[x] < BUSY]
    full = [x for x in bts if bts[x] >= BUSY]
    first = min(bts)
    return FigureVerdict(
        (
            Check(
                bool(free) and all(taat[x] > ats[x] > bts[x] for x in free),
                f"TAAT > ATS > BTS while there is room ({taat[first]:.3f}, {ats[first]:.4f}, {bts[first]:.4f})",
            ),
            Check(all(min(taat[x], ats[x]) >= BUSY for x in full), "beyond it all of them keep the processor busy"),
        ),
        "cpu_ratio",
        ats[first],
        bts[first],
    )
