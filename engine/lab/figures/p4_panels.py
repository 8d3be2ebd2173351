"""The panels that most figures of P4 share: missed deadlines and processor use of the policies over lambda, in both
readings of who drops overdue tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.lab.figures.figure import REAL, SIMULATED, Check, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import DROPPED, READINGS, RUN, DeadlineSetup, ideal, load, run, setup_of

POLICIES = ("TAAT", "BTS", "BTS1", "ATS", "ATS1")
ON_ENGINE = ("TAAT", "BTS", "ATS", "ATS1")
BUSY = 0.985  # of the time counts as always; the rest is the gap before the first batches
CLOSE = 0.005  # of SDMR: less is no difference
_BOTH = (
    "TAAT is far behind in both readings: it takes a step for every task. Between BTS and ATS there is little. Where "
    "all policies drop overdue tasks, the integral part takes k of ATS to 1 as soon as a tenth of the tasks is missed, "
    "so in overload ATS is BTS with k = 1. "
)
FINDINGS = {
    SIMULATED: _BOTH + "The curves lie on each other within a point. Where none drops overdue tasks, ATS gains a point "
    "or two from the long batches before the first miss. ATS1 is clearly ahead of ATS in both readings. A gap of 15 "
    "points between BTS and ATS, as printed, needs ATS to drop and BTS to run what is overdue; then the gap measures "
    "the Overdue Controller and not the adaptive batch.",
    REAL: _BOTH + "On the engine both scatter by more than they differ: three runs of ATS with the same seed at lambda "
    "0.5 (fixed selectivity) came to 0.27, 0.30 and 0.41. Five queries stand for a hundred there, so the load differs "
    "from seed to seed as well. ATS1 is ahead of ATS in the mean over the seeds.",
}


def points(
    lab: Lab, queries: int, selectivity: float | None, rates: tuple[float, ...], process: str = "poisson"
) -> list[DeadlineSetup]:
    base = replace(setup_of(lab), queries=queries, selectivity=selectivity, process=process)
    chosen = lab.choose(lab.by_engine(rates[1:3], rates), rates[1:2])
    return [replace(base, rate=rate) for rate in chosen]


def sdmr(
    lab: Lab, queries: int, selectivity: float | None, rates: tuple[float, ...], process: str = "poisson"
) -> FigureData:
    """Measure SDMR: a panel for each reading."""
    shown = ON_ENGINE if lab.is_real or lab.short else POLICIES
    setups = points(lab, queries, selectivity, rates, process)
    panels = []
    for reading, overdue in READINGS.items():
        curves: dict[str, list[tuple[float, float]]] = {
            p: [(s.rate, run(replace(s, policy=p, overdue=overdue)).sdmr) for s in setups] for p in shown
        }
        curves["ideal"] = [(s.rate, ideal(s)) for s in setups]
        panels.append(Panel("lambda", "SDMR", curves, dashed=("ideal",), title=reading))
    return FigureData(tuple(panels), {f"load of the operators at lambda {s.rate:g}": load(s) for s in setups})


def sdmr_checks(measured: FigureData) -> tuple[Check, ...]:
    checks = []
    for number, reading in enumerate(READINGS):
        taat, bts, ats, ats1, best = (measured.curve(p, number) for p in ("TAAT", "BTS", "ATS", "ATS1", "ideal"))
        missed = [x for x in bts if taat[x] > CLOSE]

        def gaps(one: Mapping[float, float], other: Mapping[float, float], at: list[float] = missed) -> list[float]:
            return [one[x] - other[x] for x in at] or [0.0]

        checks += [
            Check(
                "TAAT misses more than BTS", min(gaps(taat, bts)) > CLOSE, f"{span(gaps(taat, bts))} points", reading
            ),
            Check("BTS misses more than ATS", mean(gaps(bts, ats)) > CLOSE, f"{span(gaps(bts, ats))} points", reading),
            Check(
                "ATS misses more than ATS1", mean(gaps(ats, ats1)) > CLOSE, f"{span(gaps(ats, ats1))} points", reading
            ),
            Check(
                "ATS is nearer to the ideal than BTS and TAAT",
                mean(gaps(ats, best)) <= min(mean(gaps(bts, best)), mean(gaps(taat, best))),
                f"{mean(gaps(ats, best)) * 100:.1f} points above it",
                reading,
            ),
        ]
    return tuple(checks)


def sdmr_verdict(measured: FigureData, ours: Mapping[str, float] | None = None) -> FigureVerdict:
    ats, bts = measured.curve("ATS"), measured.curve("BTS")
    last = max(ats)
    return FigureVerdict(sdmr_checks(measured), f"sdmr_at_{last:g}", ats[last], bts[last], ours or {})


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def span(gaps: list[float]) -> str:
    return f"{min(gaps) * 100:.1f} to {max(gaps) * 100:.1f}" if len(gaps) > 1 else f"{gaps[0] * 100:.1f}"


def at(measured: FigureData, policy: str, rate: float, panel: int = 0) -> float:
    """Return SDMR at a lambda, or at the nearest one that was run."""
    curve = measured.curve(policy, panel)
    return curve[min(curve, key=lambda x: abs(x - rate))]


def cpu(lab: Lab, queries: int, selectivity: float | None, rates: tuple[float, ...]) -> FigureData:
    shown = ("TAAT", "BTS", "ATS")
    setups = points(lab, queries, selectivity, rates)
    panels = []
    for reading, overdue in READINGS.items():
        curves = {p: [(s.rate, run(replace(s, policy=p, overdue=overdue)).cpu) for s in setups] for p in shown}
        curves["ideal"] = [(s.rate, min(1.0, load(s))) for s in setups]
        panels.append(Panel("lambda", "share of the processor", curves, dashed=("ideal",), title=reading))
    return FigureData(tuple(panels))


def cpu_verdict(measured: FigureData) -> FigureVerdict:
    checks = []
    for number, reading in enumerate((DROPPED, RUN)):
        taat, bts, ats = (measured.curve(p, number) for p in ("TAAT", "BTS", "ATS"))
        free = [x for x in bts if bts[x] < BUSY]
        full = [x for x in bts if bts[x] >= BUSY]
        first = min(bts)
        seen = f"{taat[first]:.3f}, {ats[first]:.4f}, {bts[first]:.4f} at lambda {first:g}"
        checks += [
            Check("TAAT uses the processor most", all(taat[x] > max(ats[x], bts[x]) for x in free), seen, reading),
            Check("ATS slightly more than BTS", bool(free) and all(ats[x] > bts[x] for x in free), seen, reading),
            Check(
                "beyond saturation all are busy",
                all(min(taat[x], ats[x]) >= BUSY for x in full),
                f"at {len(full)} loads",
                reading,
            ),
        ]
    ats, bts = measured.curve("ATS"), measured.curve("BTS")
    return FigureVerdict(tuple(checks), "cpu_ratio", ats[min(ats)], bts[min(bts)])
