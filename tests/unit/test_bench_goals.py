"""The verdict lines of ``bench promise``: which cases reached a goal, and which missed it by how much."""

from __future__ import annotations

from engine.lab.bench.overload.utility import StepAnswer
from engine.lab.bench.promise.bench import PromiseCell, PromisePlan, span
from engine.lab.bench.promise.goals import verdicts
from engine.lab.bench.promise.ideal import Ideal
from engine.lab.bench.promise.measured import ClaimedUtility, Felt, PromiseRun
from engine.simulate.contract import Contract


def run(contender: str, utility: float, **more: object) -> PromiseRun:
    outputs = (Felt("o", utility, utility, 1.0, utility, 1e6, 2e6),)
    claims = {"o": ClaimedUtility(1.0, 0.8)}
    return PromiseRun(contender, "small-1", "steady", 3.0, outputs, claims, (), 0, 0, 0.0, 2.0)._replace(**more)


def cell(load: float, runs: list[PromiseRun], shape: str = "steady", promised: float = 0.8) -> PromiseCell:
    contract = Contract("qos", load, 100.0, (), (), (), 1.0, 1)
    assert contract.utility == 0
    found = PromiseCell("small-1", shape, load, 1_000.0, Ideal(1.0, {"o": 1.0}), runs, ["qos"], None, 0.0)
    return found if promised == 0.8 else found._replace(contract=contract, contract_knee_per_s=1_100.0)


def by_goal(cells: list[PromiseCell]) -> dict[str, str]:
    return {v.goal: v.text for v in verdicts(cells)}


def test_a_goal_names_the_cases_that_missed_it() -> None:
    good = cell(3.0, [run("qos", 0.95), run("random 1", 0.5)])
    poor = cell(1.5, [run("qos", 0.4), run("random 1", 0.5)])
    said = by_goal([good, poor])
    assert said["utility >= 0.9 of the ideal"].startswith("missed   utility >= 0.9 of the ideal: 1 of 2")
    assert "small-1 steady 1.5 qos (0.40)" in said["utility >= 0.9 of the ideal"]
    assert "1 of 2" in said["utility >= the best naive strategy"]
    assert said["residual 0"] == "reached  residual 0: 2 of 2"
    assert said["a step settles within 2 s"].startswith("no case")
    claimed = said["|claimed - measured| <= 0.1 per output"]
    assert "missed by small-1 steady 1.5 qos (0.40), small-1 steady 3 qos (0.15)" in claimed


def test_below_the_knee_only_the_first_second_is_forgiven() -> None:
    goal = "at 0.7 of the knee, steady: nothing is dropped after the first second"
    assert "1 of 1" in by_goal([cell(0.7, [run("qos", 1.0)])])[goal]
    assert "(17 dropped)" in by_goal([cell(0.7, [run("qos", 1.0, lost_later=17)])])[goal]
    assert by_goal([cell(3.0, [run("qos", 1.0, lost_later=17)])])[goal].startswith("no case")


def test_steps_spread_windows_and_the_contract() -> None:
    step = StepAnswer(1.0, 1.5, 6.0, 0)
    runs = [
        run("qos", 0.8, step=step, covered=(900, 1_000), wrong_windows=1),
        run("qos", 1.0, step=step, covered=(0, 0)),
    ]
    said = by_goal([cell(3.0, runs, "step", promised=0.0)])
    assert said["a step settles within 2 s"].startswith("reached")
    assert "(6.0 s)" in said["full delivery is back within 5 s"]
    assert "(22%)" in said["spread of runs <= 10%"]
    assert "(1 wrong)" in said["exact windows wrong: 0"]
    assert "(90.0% of 1000)" in said["intervals at 95 % hold the truth in >= 94% of the windows"]
    assert "(-100%)" in said["contract: total within 10%"] and said["contract: knee within 20%"].startswith("reached")


def test_the_plan_estimates_its_time() -> None:
    assert (
        PromisePlan(kinds=("edge",), loads=(3.0,), policies=("qos",), naive=(), seconds=20, rounds=3).estimate_s < 120
    )
    assert PromisePlan(seeds=5).estimate_s > 3_600 * 20
    assert (span(30), span(600), span(7_200)) == ("about 1 min", "about 10 min", "about 2.0 h")
