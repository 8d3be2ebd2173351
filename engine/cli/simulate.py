"""``aurorad simulate``: predict what a network will do at a load that it has never had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from catalog.network import Network
    from catalog.stats import Statistics
    from engine.simulate.experiment import Experiment, ExperimentRun

EXIT_USAGE = 2
LONGEST_NS = 86_400 * 10**9
T = TypeVar("T")


def register(app: typer.Typer) -> None:
    app.command()(simulate)


def simulate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A network file; - reads standard input.")],
    load: Annotated[
        str,
        typer.Option(help="Multiples of the knee, or of a trace's speed: 0.8, 0.5,1,2, 0.5..3 or 0.5..3:0.5."),
    ] = "0.5..1.5",
    rates: Annotated[
        str | None, typer.Option(metavar="STREAM=N,...", help="Rows a second of each stream, instead of --load.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Policies, with commas between; or all. \\[default: the file's]")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the arrivals; the same seed gives the same answer.")] = 0,
    duration: Annotated[
        str, typer.Option("--for", help="Length of each run in stream time; a trace has its own.")
    ] = "10s",
    arrivals: Annotated[
        str, typer.Option(help="uniform, poisson, bursty, zipf, ramp, or a trace: a CSV file of seconds,stream,tuples.")
    ] = "poisson",
    workers: Annotated[int | None, typer.Option(min=1, max=256, help="Worker threads. \\[default: the file's]")] = None,
    from_stats: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Take costs and rates of a running daemon, or of its stats in a file."),
    ] = None,
    measure: Annotated[
        bool, typer.Option(help="Measure costs first: run the boxes on sample tuples for a moment.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Run the engine too, in real time, and print how far off the simulation is.")
    ] = False,
    contract: Annotated[
        bool,
        typer.Option("--contract", help="Predict each output with the load shedder on: share delivered, p99, utility."),
    ] = False,
    png: Annotated[Path | None, typer.Option("--plot", help="Draw a PNG (needs matplotlib).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for tools.")] = False,
) -> None:
    """Predict latency, utility, queue memory and missed deadlines of a network, by load and policy.

    The simulator runs the daemon's own scheduler under a virtual clock, so
    an hour takes seconds. At load 1 all workers are busy all the time: the
    knee, which `aurorad bench overload` measures on the daemon. Costs come
    from the file, else from the kind of box; --measure runs the boxes on
    sample tuples, --from-stats asks a running daemon. Without --contract
    the simulator sheds no load; it only drops tuples that are too late for
    every output, of streams that say overload: shed. A contract includes
    what decoding can do. Near the knee small errors of the costs move a
    median by a factor; the table at the end says by how much.

    \b
      aurorad simulate network.yaml --load 0.5..3 --policy qos,round_robin
      aurorad simulate network.yaml --load 2 --contract
      aurorad simulate network.yaml --rates trades=50000 --contract
      aurorad simulate network.yaml --from-stats http://127.0.0.1:9400 --for 1h
      aurorad simulate network.yaml --arrivals trace.csv --json > runs.json

    Exit codes: 0 simulated, 1 the daemon of --from-stats does not answer, 2
    wrong usage, 78 a bad network file.
    """
    import sys

    from engine.run.network_file import read_network

    _refuse_combinations(check=check, contract=contract, plot=png is not None, as_json=as_json)
    network = read_network(sys.stdin.read() + "\n" if file == "-" else file)
    stats = _ask(from_stats)
    statistics = _statistics(network, from_stats, stats, measure)
    experiment = _experiment(network, statistics, load, policy, seed, duration, arrivals, workers)
    if rates is not None:
        experiment = _at_rates(experiment, rates)
    if from_stats is None and not (measure or check):
        _warn_of_guesses(network)
    if check:
        _check(experiment)
    elif contract:
        from engine.simulate.edge_limits import decode_costs

        _contract(replace(experiment, decode_ns=decode_costs(network, stats)), as_json)
    else:
        _compare_policies(experiment, as_json, png)


def _refuse_combinations(*, check: bool, contract: bool, plot: bool, as_json: bool) -> None:
    from importlib.util import find_spec

    if (check, contract, plot).count(True) > 1 or (check and as_json):
        _refuse("--check and --contract print their own tables: not both, not with --plot; --check not with --json")
    if plot and find_spec("matplotlib") is None:
        _refuse("--plot needs matplotlib: pip install 'aurorad[plots]'")


def _compare_policies(experiment: Experiment, as_json: bool, png: Path | None) -> None:
    from engine.simulate.uncertainty import median_ranges, near_knee

    runs = _run_with_bar(experiment)
    around = near_knee(experiment)
    ranges = [] if around is None else _with_bar(around, lambda progress: median_ranges(experiment, runs, progress))
    if as_json:
        import orjson

        from engine.simulate.report import as_json as to_json

        typer.echo(orjson.dumps(to_json(experiment, runs, ranges), option=orjson.OPT_INDENT_2).decode())
    else:
        from engine.simulate.report import text

        typer.echo(text(runs, ranges))
    if png is not None:  # last: the table is on the screen even if the plot fails
        from engine.simulate.report import draw_png

        draw_png(png, runs)


def _warn_of_guesses(network: Network) -> None:
    """Warn of unknown selectivities: filters that pass everything would be a simulation of another network."""
    from engine.run.declared_costs import unknown_selectivities

    if names := unknown_selectivities(network):
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        typer.echo(
            f"aurorad: warning: the selectivity of {shown} is unknown and counts as 1: use --measure (a sample), "
            "--from-stats (a running daemon), or set `selectivity` of the box",
            err=True,
        )


def _contract(experiment: Experiment, as_json: bool) -> None:
    from engine.simulate.contract import contract_json, contract_text, run_contracts

    found = _with_bar(experiment, lambda progress: run_contracts(experiment, progress))
    if as_json:
        import orjson

        typer.echo(orjson.dumps(contract_json(experiment, found), option=orjson.OPT_INDENT_2).decode())
    else:
        typer.echo(contract_text(found))


def _check(experiment: Experiment) -> None:
    from engine.run.tuning import tune_process
    from engine.simulate.check import compare
    from engine.simulate.report import comparison_text

    tune_process()  # the comparison is with a daemon, which tunes its process
    typer.echo(comparison_text(_with_bar(experiment, lambda progress: compare(experiment, progress))))


def _at_rates(experiment: Experiment, text: str) -> Experiment:
    """Return the experiment with these rows a second. A stream that is not named has none."""
    names = [s.name for s in experiment.network.streams]
    found = dict.fromkeys(names, 0.0)
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        if name not in found or not number.replace("_", "").replace(".", "", 1).isdigit():
            _refuse(f"--rates: {part.strip()!r} is not STREAM=ROWS_A_SECOND; the streams are {', '.join(names)}")
        found[name] = float(number)
    if experiment.trace or not any(found.values()):
        _refuse("--rates needs a stream with more than 0 rows a second, and no trace")
    experiment.statistics.rate_per_s[:] = list(found.values())
    return replace(experiment, rates_per_s=tuple(found.values()))


def _ask(url: str | None) -> dict[str, Any] | None:
    """Return the statistics of a running daemon."""
    if url is None:
        return None
    from engine.cli.remote import Remote, RemoteError

    if Path(url).is_file():
        import orjson

        try:
            known: dict[str, Any] = orjson.loads(Path(url).read_bytes())
        except orjson.JSONDecodeError as error:
            _refuse(f"--from-stats: {url} is not JSON: {error}")
        return known
    try:
        answer: dict[str, Any] = Remote(url).json("/api/v1/stats")
    except RemoteError as error:
        typer.echo(f"aurorad: {error}{f' ({error.hint})' if error.hint else ''}", err=True)
        raise typer.Exit(1) from error
    return answer


def _statistics(network: Network, url: str | None, stats: dict[str, Any] | None, measure: bool) -> Statistics:
    from engine.run.declared_costs import declared_costs

    if url is None or stats is None:
        if measure:
            from engine.simulate.measure_costs import measure_costs

            return measure_costs(network)
        return declared_costs(network)
    from engine.simulate.learned_costs import learned_costs

    return learned_costs(network, stats, url)


def _experiment(
    network: Network,
    statistics: Statistics,
    load: str,
    policy: str | None,
    seed: int,
    duration: str,
    arrivals: str,
    workers: int | None,
) -> Experiment:
    from catalog.config.units import parse_duration_ns
    from engine.run.settings import scheduler_settings
    from engine.simulate.arrivals import PROCESSES, read_trace
    from engine.simulate.experiment import Experiment
    from engine.simulate.overheads import DAEMON
    from engine.simulate.report import parse_loads

    section = network.config.scheduler
    try:
        loads, duration_ns = parse_loads(load), parse_duration_ns(duration)
    except ValueError as error:
        _refuse(str(error))
    if not 0 < duration_ns <= LONGEST_NS:
        _refuse("--for must be above 0 and at most 1d, because all arrivals of a run are in memory")
    is_trace = arrivals not in PROCESSES
    if is_trace and not Path(arrivals).exists():
        _refuse(f"--arrivals must be {', '.join(PROCESSES)} or a trace file; there is no file {arrivals}")
    return Experiment(
        network=network,
        statistics=statistics,
        policies=_policies(policy or section.policy, network),
        loads=loads,
        seed=seed,
        duration_ns=duration_ns,
        process="poisson" if is_trace else arrivals,
        trace=read_trace(Path(arrivals), {s.name: s.number for s in network.streams}) if is_trace else {},
        workers=workers or network.config.engine.sure_workers,
        settings=scheduler_settings(section, seed),
        overheads=DAEMON,
    )


def _policies(names: str, network: Network) -> tuple[str, ...]:
    from catalog.config.words import did_you_mean
    from scheduler.choice import AUTO
    from scheduler.policies import nearest, policies, requirements

    known = policies()
    if names == "all":
        return tuple(name for name in known if not requirements(name, network))
    chosen = tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in chosen:
        if name == AUTO:
            continue
        if name not in known:
            hint = did_you_mean(name, [*known, AUTO])
            _refuse(f"unknown policy '{name}'{f'; {hint}' if hint else ''}")
        for lacking in requirements(name, network):
            _refuse(f"{lacking}; or use {nearest(name, network)}")
    return chosen


def _refuse(message: str) -> NoReturn:
    typer.echo(f"aurorad: {message}", err=True)
    raise typer.Exit(EXIT_USAGE)


def _run_with_bar(experiment: Experiment) -> list[ExperimentRun]:
    from engine.simulate.experiment import run_experiment

    return _with_bar(experiment, lambda progress: run_experiment(experiment, progress))


def _with_bar(experiment: Experiment, work: Callable[[Callable[[str, float, float], None]], T]) -> T:
    """Show a progress bar on standard error, so that standard output is the same for the same seed."""
    from rich.console import Console
    from rich.progress import Progress

    total = len(experiment.loads) * len(experiment.policies)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulate", total=total)
        seen: dict[tuple[str, float], float] = {}

        def progress(policy: str, load: float, share: float) -> None:
            seen[policy, load] = min(share, 1.0)
            bar.update(task, completed=sum(seen.values()), description=f"{policy} at {load:g}")

        return work(progress)
