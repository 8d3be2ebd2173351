"""The doors to a change at a real daemon: PUT, queries and SIGHUP, with a sender and a reader that stay connected."""

from __future__ import annotations

import json
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.e2e.daemon import RunningDaemon, connect, free_ports, lines, running, wait_for

BOXES = """
boxes:
  big: {filter: s, where: "n > 1"}
  sums: {aggregate: big, window: {count: 2}, select: {total: "sum(n)"}}
"""


def network(source: int, sink: int) -> str:
    return f"""
streams:
  s: {{schema: {{n: int}}, overload: block, source: {{tcp: "127.0.0.1:{source}"}}}}
{BOXES}
outputs:
  totals: {{from: sums, sink: {{tcp: "127.0.0.1:{sink}"}}}}
"""


def ask(daemon: RunningDaemon, method: str, path: str, body: str = "") -> tuple[int, Any]:
    url = f"http://127.0.0.1:{daemon.http_port}/api/v1/{path}"
    request = urllib.request.Request(url, body.encode() or None, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_every_door_changes_the_network_and_the_window_stays(tmp_path: Path) -> None:
    http, source, sink, more = free_ports(4)
    with running(tmp_path, network(source, sink), http) as daemon, connect(sink) as reader:
        file = tmp_path / "network.yaml"
        text = file.read_text()
        with socket.create_connection(("127.0.0.1", source)) as sender:
            sender.sendall(b'{"n":10}\n')
            wait_for(lambda: daemon.stats()["boxes"][1]["tuples_in"] == 1, "the window is open")

            status, plan = ask(daemon, "PUT", "network?dry_run=true", text.replace("n > 1", "n > 2"))
            assert (status, plan["applied"]) == (200, False)
            assert [(p["name"], p["fate"]) for p in plan["parts"] if p["fate"] != "kept"] == [("big", "rebuilt")]
            status, answer = ask(daemon, "PUT", "network", text.replace("n > 1", "n > 2"))
            assert (status, answer["applied"], answer["version"]) == (200, True, 2)

            box, sink_of_it = '{filter: big, where: "n % 2 = 1"}', f'{{tcp: "127.0.0.1:{more}"}}'
            query = f"boxes: {{odd: {box}}}\noutputs: {{odds: {{from: odd, sink: {sink_of_it}}}}}\n"
            assert ask(daemon, "POST", "queries", query)[1]["applied"] is True
            assert ask(daemon, "POST", "queries", query)[1]["applied"] is False
            assert ask(daemon, "POST", "queries", query.replace("= 1", "= 0"))[0] == 409
            with connect(more) as odds:
                sender.sendall(b'{"n":2}\n{"n":5}\n')
                assert lines(odds, 1) == [{"n": 5}]
                assert lines(reader, 1)[0]["total"] == 15  # 10 came before two changes, 2 is dropped by the first
                assert ask(daemon, "GET", "queries/odds")[1]["boxes"] == ["odd"]
                assert ask(daemon, "DELETE", "queries/odds")[1]["applied"] is True
                assert odds.recv(1) == b""  # its reader is disconnected
            assert ask(daemon, "DELETE", "queries/odds")[0] == 404

            sender.sendall(b'{"n":20}\n')
            wait_for(lambda: daemon.stats()["boxes"][1]["tuples_in"] == 3, "the window is open again")
            status, answer = ask(daemon, "PUT", "network", text.replace("count: 2", "count: 3"))
            assert (status, answer["plan"]["drops_state"]) == (409, ["sums"])
            status, answer = ask(daemon, "PUT", "network", text.replace("sum(n)", "sum(m)"))
            assert status == 422 and answer["problems"][0]["place"].startswith("boxes.sums")

            file.write_text(text.replace("n > 1", "n > 3"))
            daemon.process.send_signal(signal.SIGHUP)
            wait_for(lambda: any("version 5" in entry["message"] for entry in daemon.log), "it has applied the file")
            sender.sendall(b'{"n":3}\n{"n":30}\n')
            assert lines(reader, 1)[0]["total"] == 50
        assert not any(daemon.stats()["conservation_residual"].values())
