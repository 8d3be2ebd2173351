"""A network file rewritten for the experiment: free ports, Arrow at both ends, another ``overload``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from catalog.config.document import read_document
from catalog.config.read import read_text
from catalog.network import Network, Output, Stream
from catalog.schema import Type
from engine.lab.bench.harness import BenchError, free_ports
from engine.lab.bench.overload.tuple_worth import worth_of
from engine.run.network_file import read_network
from engine.simulate.sample_tuples import sample
from load_shedder.decide.values import OTHERS_WORTH

NEVER_NS = 1e18
RECEIVE_BUFFER = "32KiB"  # of a connection: the kernel's default would hold seconds of a blocked stream


class Scenario:
    """A network file and its samples; ``folder`` gets the samples and the rewritten files."""

    def __init__(self, file: Path, folder: Path, seed: int = 7) -> None:
        text, name = read_text(file)
        self.network: Network = read_network(file)
        self._data: dict[str, Any] = read_document(text, name, os.environ).data
        self._folder = folder
        if not any(s.overload == "shed" for s in self.network.streams):
            raise BenchError("no stream of this network says overload: shed, so there is nothing to compare")
        for stream in self.network.streams:
            if stream.time_field is None:
                raise BenchError(
                    f"stream {stream.name} has no event time, so its tuples cannot carry the time they were due"
                )
        for output in self.network.outputs:
            if time_field(self.network, output) is None:
                raise BenchError(
                    f"output {output.name} drops the event time of its stream, so its latency cannot be measured"
                )
        ports = free_ports(len(self.network.streams) + len(self.network.outputs) + 1)
        self.http_port, *rest = ports
        self.stream_ports = dict(zip([s.name for s in self.network.streams], rest, strict=False))
        self.output_ports = dict(
            zip([o.name for o in self.network.outputs], rest[len(self.stream_ports) :], strict=True)
        )
        self.samples = {s.name: self._write_sample(s, seed) for s in self.network.streams}

    def file(self, overload: str, memory_bytes: int | None = None) -> Path:
        """Write the network with every source and sink on loopback in Arrow, and ``overload`` for streams that shed."""
        data = json.loads(json.dumps(self._data))
        data["http"] = {"listen": f"127.0.0.1:{self.http_port}"}
        data["log"] = {"level": "warning"}
        if memory_bytes is not None:
            data.setdefault("engine", {})["memory"] = f"{memory_bytes}B"
        for name, stream in data["streams"].items():
            stream["source"] = {
                "tcp": f"127.0.0.1:{self.stream_ports[name]}", "format": "arrow", "receive_buffer": RECEIVE_BUFFER,
            }  # fmt: skip
            stream["overload"] = overload if stream.get("overload") == "shed" else stream.get("overload", "block")
        for name, output in data["outputs"].items():
            output["sink"] = {
                "tcp": f"127.0.0.1:{self.output_ports[name]}", "format": "arrow", "when_slow": "block",
                "buffer": "64MiB",
            }  # fmt: skip
        file = self._folder / f"{overload}-{memory_bytes or 0}.yaml"
        file.write_text(json.dumps(data, indent=1))
        return file

    def stream_specs(self, per_s: Mapping[str, float]) -> list[dict[str, Any]]:
        return [
            {"name": s.name, "port": self.stream_ports[s.name], "time": s.time_field, "per_s": per_s[s.name],
             "sample": str(self.samples[s.name])}
            for s in self.network.streams
        ]  # fmt: skip

    def output_specs(self, warm_s: float) -> list[dict[str, Any]]:
        return [
            {"name": o.name, "port": self.output_ports[o.name], "times": [time_field(self.network, o)],
             "warm_s": warm_s, "latency": latency_points(o), "value": worth_of(o, OTHERS_WORTH)}
            for o in self.network.outputs
        ]  # fmt: skip

    def _write_sample(self, stream: Stream, seed: int) -> Path:
        batch = sample(stream, seed)
        file = self._folder / f"{stream.name}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return file


def time_field(network: Network, output: Output) -> str | None:
    """Find the field of an output that holds the event time of its stream, by its name."""
    names = {s.time_field for s in network.streams if s.time_field is not None}
    return next((f.name for f in output.schema if f.name in names and f.type is Type.TIMESTAMP), None)


def latency_points(output: Output) -> tuple[list[float], list[float]]:
    """Return the latency graph of an output as its delays and their utilities."""
    graph = output.qos.latency
    return ([0.0, NEVER_NS], [1.0, 1.0]) if graph is None else (graph.xs.tolist(), graph.ys.tolist())
