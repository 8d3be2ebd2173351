"""``run --on spark``: the same rows as the daemon's engine, through restarts, cut-off batches and repeated commits."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.on_spark import service
from engine.on_spark.batches import BatchRunner
from engine.on_spark.store import SparkCheckpointError
from engine.run.network_file import read_network
from router.spark.driver import commits
from router.spark.wire.errors import SparkUnavailableError
from tests.spark.on_spark_world import Batch, bare_python, read_out, run_engine, run_spark, write_batches

pytest.importorskip("pyspark")

SOURCE = "source: {spark: parquet, path: FOLDER/in/NAME, options: {maxFilesPerTrigger: 1}}"
TRADES = (
    "trades: {schema: {ts: timestamp, symbol: string, price: double, size: int, venue: string?}, time: ts, slack: 2s, "
    + SOURCE.replace("NAME", "trades")
    + "}"
)
QUOTES = "quotes: {schema: {ts: timestamp, symbol: string, bid: double}, time: ts, slack: 2s, " + SOURCE.replace(
    "NAME", "quotes"
) + "}"  # fmt: skip
NETWORK = f"""
streams:
  {TRADES}
  {QUOTES}
boxes:
  big: {{filter: trades, where: "price * size > 5000 and (venue <> 'X' or venue is null)"}}
  dear: {{map: big, add: {{notional: "price * 1.5"}}}}
  bars: {{aggregate: dear, window: {{tumbling: 10s}}, by: [symbol], select: {{n: "count(*)", v: "sum(notional)"}}}}
  pairs: {{join: [big, quotes], on: "l.symbol = r.symbol", within: 1s}}
  totals: {{aggregate: bars, window: {{tumbling: 20s}}, select: {{n: "sum(n)", v: "sum(v)"}}}}
outputs:
  out_pairs: {{from: pairs, sink: {{spark: parquet, path: FOLDER/out/out_pairs}}}}
  out_totals: {{from: totals, sink: {{spark: parquet, path: FOLDER/out/out_totals}}}}
  out_late: {{from: bars.late, sink: {{spark: parquet, path: FOLDER/out/out_late}}}}
"""


def made_up(seed: int, batches: int, rows: int = 200, early_s: int = 1) -> list[Batch]:
    """Random rows. Those of a batch come up to ``early_s`` before the batch before it ended."""
    rng = random.Random(seed)

    def at(batch: int) -> int:
        return (1_700_000_000 + batch * 15) * 10**6 + rng.randrange(-early_s * 10**6, 15 * 10**6)

    def trade(batch: int) -> dict[str, Any]:
        venue = rng.choice(["N", "P", "X", None])
        return {
            "ts": at(batch), "symbol": rng.choice("ABCDE"), "price": round(rng.random() * 100, 2),
            "size": rng.randrange(1, 1000), "venue": venue,
        }  # fmt: skip

    def quote(batch: int) -> dict[str, Any]:
        return {"ts": at(batch), "symbol": rng.choice("ABCDEF"), "bid": round(rng.random() * 100, 2)}

    return [
        {"trades": [trade(b) for _ in range(rows)], "quotes": [quote(b) for _ in range(rows // 2)]}
        for b in range(batches)
    ]


def test_two_stages_and_a_join_match_the_daemon_also_after_a_restart(session: Any, tmp_path: Path) -> None:
    text = NETWORK.replace("FOLDER", str(tmp_path))
    network, batches = read_network(text, {}), made_up(1, 3)
    write_batches(tmp_path / "in", network, batches)
    run = run_spark(session, text, tmp_path, shards=2)
    wanted = run_engine(text, batches)
    assert read_out(tmp_path / "out", network) == wanted
    assert wanted["out_pairs"] and wanted["out_totals"]
    assert [report.rows["trades"] for report in run.reports] == [200, 200, 200, 0]
    again = run_spark(session, text, tmp_path, shards=2)
    assert again.reports == [] and read_out(tmp_path / "out", network) == wanted
    with pytest.raises(SparkCheckpointError, match="2 shards, not 3"):
        run_spark(session, text, tmp_path, shards=3)
    with pytest.raises(SparkCheckpointError, match="another network"):
        run_spark(session, text.replace("within: 1s", "within: 2s"), tmp_path, shards=2)


def test_late_rows_are_those_of_the_daemon(session: Any, tmp_path: Path) -> None:
    text = f"""
streams:
  {TRADES}
boxes:
  bars: {{aggregate: trades, window: {{tumbling: 10s}}, by: [symbol], select: {{n: "count(*)", high: "max(price)"}}}}
outputs:
  out: {{from: bars, sink: {{spark: parquet, path: FOLDER/out/out}}}}
  out_late: {{from: bars.late, sink: {{spark: parquet, path: FOLDER/out/out_late}}}}
""".replace("FOLDER", str(tmp_path))
    network = read_network(text, {})
    batches = [{"trades": batch["trades"]} for batch in made_up(2, 3, early_s=14)]
    write_batches(tmp_path / "in", network, batches)
    run = run_spark(session, text, tmp_path, shards=3)
    wanted = run_engine(text, batches)
    assert read_out(tmp_path / "out", network) == wanted
    assert sum(wanted["out_late"].values()) == sum(report.late.get("bars", 0) for report in run.reports) > 0


def test_a_batch_that_is_cut_off_anywhere_is_exact(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its manifest, between two commits, and after the last one, before Spark has noted it."""
    text = NETWORK.replace("FOLDER", str(tmp_path))
    network, batches = read_network(text, {}), made_up(3, 2)
    write_batches(tmp_path / "in", network, batches)
    commit, tidy, run_stages = commits.commit, BatchRunner._tidy, BatchRunner._run
    calls = {"commit": 0}

    def stages_then_die(self: BatchRunner, *arguments: Any) -> Any:
        run_stages(self, *arguments)
        raise ConnectionError("cut off before the manifest")

    def second_commit_dies(*arguments: Any) -> Any:
        calls["commit"] += 1
        if calls["commit"] == 2:
            raise ConnectionError("cut off between two commits")
        return commit(*arguments)

    def die_after_commits(self: BatchRunner, *arguments: Any) -> None:
        raise ConnectionError("cut off after the commits")

    for target, name, broken, whole in (
        (BatchRunner, "_run", stages_then_die, run_stages),
        (commits, "commit", second_commit_dies, commit),
        (BatchRunner, "_tidy", die_after_commits, tidy),
    ):
        monkeypatch.setattr(target, name, broken)
        with pytest.raises(ConnectionError, match="cut off"):
            run_spark(session, text, tmp_path, shards=2)
        monkeypatch.setattr(target, name, whole)
    run_spark(session, text, tmp_path, shards=2)
    assert read_out(tmp_path / "out", network) == run_engine(text, batches)


def test_executors_that_have_not_got_our_packages(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours travel with the query; those that ours stand on are missed early, and all at once."""
    text = NETWORK.replace("FOLDER", str(tmp_path))
    network, batches = read_network(text, {}), made_up(4, 2)
    write_batches(tmp_path / "in", network, batches)
    empty = bare_python(tmp_path / "empty", with_packages=False)
    monkeypatch.setattr(session.sparkContext, "pythonExec", str(empty))
    with pytest.raises(SparkUnavailableError, match=f"{empty}.* lacks google-re2, numpy, orjson, pyarrow, pydantic"):
        run_spark(session, text, tmp_path, shards=2)
    python = bare_python(tmp_path / "python", with_packages=True)
    assert subprocess.run([python, "-c", "import engine"], cwd="/", capture_output=True, check=False).returncode
    monkeypatch.setattr(session.sparkContext, "pythonExec", str(python))
    run_spark(session, text, tmp_path, shards=2)
    assert read_out(tmp_path / "out", network) == run_engine(text, batches)


def test_a_damaged_state_is_told_with_its_file(session: Any, tmp_path: Path) -> None:
    text = NETWORK.replace("FOLDER", str(tmp_path))
    network, batches = read_network(text, {}), made_up(5, 3)
    write_batches(tmp_path / "in", network, batches[:2])
    run_spark(session, text, tmp_path, shards=2, ends=False)
    manifest = json.loads((tmp_path / "checkpoint/batches/000000000001/manifest.json").read_text().split("\n")[0])
    state = tmp_path / "checkpoint" / manifest["states"]["1-0"][0][0]
    whole = state.read_bytes()
    write_batches(tmp_path / "in", network, batches)
    for broken, why in ((whole[:-1], "is damaged"), (whole[:9] + b"?" + whole[10:], "is damaged"), (None, "cannot be")):
        state.write_bytes(broken) if broken is not None else state.unlink()
        with pytest.raises(Exception, match=why) as failed:
            run_spark(session, text, tmp_path, shards=2)
        assert f"{state.name} {why}" in str(service.why(failed.value)) and "Traceback" not in str(
            service.why(failed.value)
        )
    state.write_bytes(whole)
    run_spark(session, text, tmp_path, shards=2)
    assert read_out(tmp_path / "out", network) == run_engine(text, batches)
