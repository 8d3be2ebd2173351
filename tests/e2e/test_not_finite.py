"""NaN and infinite values on their way out of the real daemon: as NULL or as a word, counted either way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.daemon import connect, free_ports, lines, ndjson, running, wait_for


@pytest.mark.parametrize(("nan", "words"), [("null", [None, None]), ("string", ["-Infinity", "NaN"])])
def test_a_value_that_is_not_finite(tmp_path: Path, nan: str, words: list[str | None]) -> None:
    http, source, sink = free_ports(3)
    network = f"""
streams: {{s: {{schema: {{x: double}}, source: {{tcp: 127.0.0.1:{source}}}}}}}
boxes: {{m: {{map: s, select: {{low: "x * -1e308 * 100", odd: "sqrt(x * -1)", x: x}}}}}}
outputs: {{out: {{from: m, sink: {{tcp: 127.0.0.1:{sink}, nan: {nan}}}}}}}
"""
    with running(tmp_path, network, http) as daemon, connect(sink) as reader, connect(source) as sender:
        wait_for(
            lambda: b'aurorad_output_not_finite_values_total{output="out"} 0' in daemon.get("/metrics"), "a metric"
        )
        sender.sendall(ndjson([{"x": 2.0}, {"x": 0.0}]))
        first, second = lines(reader, 2)
        assert [first["low"], first["odd"], first["x"]] == [*words, 2.0]
        assert second["x"] == 0.0 and second["low"] == 0.0
        line = b'aurorad_output_not_finite_values_total{output="out"} 2'
        wait_for(lambda: line in daemon.get("/metrics"), "both values are counted")


def test_a_file_has_the_words_too(tmp_path: Path) -> None:
    http, source = free_ports(2)
    path = tmp_path / "out.csv"
    network = f"""
streams: {{s: {{schema: {{x: double}}, source: {{tcp: 127.0.0.1:{source}}}}}}}
boxes: {{m: {{map: s, select: {{odd: "sqrt(x)", x: x}}}}}}
outputs: {{out: {{from: m, sink: {{file: {path}, nan: string}}}}}}
"""
    with running(tmp_path, network, http) as daemon, connect(source) as sender:
        sender.sendall(ndjson([{"x": -1.0}, {"x": 4.0}]))
        wait_for(lambda: path.exists() and path.read_text() == "odd,x\nNaN,-1.0\n2.0,4.0\n", "the file is written")
        line = b'aurorad_output_not_finite_values_total{output="out"} 1'
        wait_for(lambda: line in daemon.get("/metrics"), "the value is counted")
