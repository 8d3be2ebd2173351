"""Revisions, roll back, pause and the restart after them, at a real daemon with a data_dir that is killed."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.e2e.daemon import RunningDaemon, connect, free_ports, lines, running, wait_for
from tests.e2e.test_live import ask

QUERY = 'boxes: {odd: {filter: s, where: "n % 2 = 1"}}\noutputs: {odds: {from: odd}}\n'


def network(tmp_path: Path, source: int, sink: int) -> str:
    return f"""
engine: {{data_dir: {tmp_path / "data"}, checkpoint: 200ms}}
streams:
  s: {{schema: {{n: int}}, overload: spill, source: {{tcp: "127.0.0.1:{source}"}}, keep: {{for: 1h}}}}
boxes:
  sums: {{aggregate: s, window: {{count: 4}}, select: {{total: "sum(n)"}}}}
outputs:
  totals: {{from: sums, sink: {{tcp: "127.0.0.1:{sink}"}}}}
"""


def kill(daemon: RunningDaemon) -> None:
    daemon.process.send_signal(signal.SIGKILL)
    daemon.process.wait()


def send(port: int, *numbers: int) -> None:
    with connect(port) as sender:
        sender.sendall(b"".join(b'{"n":%d}\n' % n for n in numbers))


def test_a_change_outlives_a_kill_with_its_state_and_an_edited_file_waits(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    text = network(tmp_path, source, sink)
    with running(tmp_path, text, http) as daemon:
        send(source, 1, 2)
        wait_for(lambda: daemon.stats()["boxes"][0]["tuples_in"] == 2, "the window is open")
        assert ask(daemon, "POST", "queries", QUERY)[1]["version"] == 2
        file = ask(daemon, "GET", "revisions/2")[1]["text"]
        renamed = file.replace("sums", "totals_of_four")
        assert ask(daemon, "PUT", "network", renamed)[1]["version"] == 3
        send(source, 3)
        wait_for(lambda: sum(b["tuples_in"] for b in daemon.stats()["boxes"]) >= 4, "the third has come")
        kill(daemon)
    with running(tmp_path, text, http) as daemon, connect(sink) as reader:  # the file is the one before
        wait_for(lambda: any("revision 3 runs" in entry["message"] for entry in daemon.log), "it says what runs")
        found = ask(daemon, "GET", "revisions")[1]["revisions"]
        assert [(r["number"], r["door"]) for r in found] == [(3, "apply"), (2, "query add"), (1, "start")]
        assert [(p["name"], p["was"]) for p in found[0]["parts"]] == [("totals_of_four", "sums")]
        send(source, 4)
        assert lines(reader, 1)[0]["total"] == 10  # over a change, a new name and a kill
        daemon.process.send_signal(signal.SIGHUP)
        wait_for(lambda: ask(daemon, "GET", "revisions")[1]["revisions"][0]["door"] == "reload", "back to the file", 30)
        assert {q["name"] for q in ask(daemon, "GET", "queries")[1]["queries"]} == {"totals"}
        assert ask(daemon, "GET", "history")[1]["history"][0]["newest"] == 4  # it went on over all changes


def test_roll_back_runs_an_earlier_network_as_a_new_revision(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    with running(tmp_path, network(tmp_path, source, sink), http) as daemon:
        ask(daemon, "POST", "queries", QUERY)
        ask(daemon, "DELETE", "queries/odds")
        status, plan = ask(daemon, "POST", "revisions/2/rollback?dry_run=true")
        assert (status, plan["applied"]) == (200, False)
        assert {p["name"] for p in plan["parts"] if p["fate"] == "added"} == {"odd", "odds"}
        assert ask(daemon, "POST", "revisions/2/rollback")[1]["version"] == 4
        assert ask(daemon, "POST", "revisions/4/rollback")[1]["applied"] is False
        assert ask(daemon, "GET", "revisions")[1]["revisions"][0]["door"] == "rollback to 2"
        for path in ("revisions/99", "revisions/x"):
            assert ask(daemon, "GET", path)[0] == 404
        assert ask(daemon, "POST", "revisions/99/rollback")[0] == 404


def test_an_edited_file_runs_where_no_other_door_was_used(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    text = network(tmp_path, source, sink)
    with running(tmp_path, text, http) as daemon:
        kill(daemon)
    with running(tmp_path, text + "  raw: {from: s}\n", http) as daemon:
        assert {q["name"] for q in ask(daemon, "GET", "queries")[1]["queries"]} == {"totals", "raw"}
        ask(daemon, "POST", "queries", QUERY)
        kill(daemon)
    with running(tmp_path, text, http, "--from-file") as daemon:
        assert {q["name"] for q in ask(daemon, "GET", "queries")[1]["queries"]} == {"totals"}
        doors = [r["door"] for r in ask(daemon, "GET", "revisions")[1]["revisions"]]
        assert doors[0] == "start" and "query add" in doors


def test_a_paused_query_misses_the_pause_and_keeps_its_window_over_a_kill(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    text = network(tmp_path, source, sink)
    with running(tmp_path, text, http) as daemon:
        send(source, 1)
        wait_for(lambda: daemon.stats()["boxes"][0]["tuples_in"] == 1, "the window is open")
        assert ask(daemon, "POST", "queries/totals/pause")[1]["applied"] is True
        assert ask(daemon, "POST", "queries/totals/pause")[1]["applied"] is False
        send(source, 100, 200)
        wait_for(lambda: daemon.stream("s")["admitted"] == 3, "they have passed by")
        assert ask(daemon, "POST", "queries/totals/resume")[1]["applied"] is True
        send(source, 2)
        wait_for(lambda: daemon.stats()["boxes"][0]["tuples_in"] == 2, "it goes on")
        assert ask(daemon, "POST", "queries/totals/pause")[1]["applied"] is True
        send(source, 300)
        wait_for(lambda: daemon.stream("s")["admitted"] == 5, "it has passed by")
        kill(daemon)
    with running(tmp_path, text, http) as daemon, connect(sink) as reader:
        assert ask(daemon, "GET", "queries/totals")[1]["paused"] is True
        assert ask(daemon, "POST", "queries/totals/resume")[1]["applied"] is True
        send(source, 3, 4)
        assert lines(reader, 1)[0]["total"] == 10
        assert ask(daemon, "POST", "queries/none/pause")[0] == 404


def test_a_query_that_is_added_live_reads_history_and_goes_on_over_changes(tmp_path: Path) -> None:
    http, source, sink, late = free_ports(4)
    text = network(tmp_path, source, sink)
    query = f'outputs: {{all: {{from: s, sink: {{tcp: "127.0.0.1:{late}"}}}}, odds: {{from: odd}}}}\n'
    query = 'boxes: {odd: {filter: s, where: "n % 2 = 1"}}\n' + query
    with running(tmp_path, text, http) as daemon:
        for first in range(0, 3_000, 1_000):
            send(source, *range(first, first + 1_000))
            ask(daemon, "POST", "queries", f"outputs: {{q{first}: {{from: s}}}}\n")
        wait_for(lambda: daemon.stream("s")["admitted"] == 3_000, "all have come")
        status, answer = ask(daemon, "POST", "queries?from=earliest", query)
        assert (status, answer["applied"]) == (200, True), answer
        wait_for(lambda: daemon.output("all")["emitted"] == 3_000, "history has been read")
        ask(daemon, "DELETE", "queries/q0")
        send(source, *range(3_000, 3_500))
        wait_for(lambda: daemon.output("all")["emitted"] == 3_500, "it is live")
        wait_for(lambda: daemon.output("odds")["emitted"] == 1_750, "and so is the other one")
        assert daemon.output("q2000")["emitted"] <= 1_500
        kill(daemon)
    with running(tmp_path, text, http) as daemon, connect(late) as reader:
        send(source, 3_500)
        assert lines(reader, 1) == [{"n": 3_500}]
        wait_for(lambda: daemon.output("all")["emitted"] == 3_501, "nothing comes twice")
