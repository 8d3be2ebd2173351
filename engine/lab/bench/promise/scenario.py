"""A generated network on disk: samples of its streams, and its network file with free ports for each contender."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from catalog.network import Network
from catalog.schema import Type
from engine.lab.bench.harness import free_ports
from engine.lab.bench.overload.scenario import RECEIVE_BUFFER, latency_points
from engine.lab.bench.overload.tuple_worth import worth_of
from engine.lab.bench.promise.kinds import PromiseNetwork
from engine.run.network_file import read_network
from load_shedder.decide.values import OTHERS_WORTH
from router.codecs.arrow import arrow_type

SAMPLE_ROWS = 20_000


class Contender(NamedTuple):
    """A way to meet an overload: the daemon's own under a policy, or a naive one in front of it."""

    name: str
    policy: str = "round_robin"
    manner: str = "direct"  # of the sender (``overload/clients``)
    rate: float = 1.0  # of the knee, that ``random`` lets in
    is_ours: bool = False


class PromiseScenario:
    """``folder`` gets the samples and the network files."""

    def __init__(self, spec: PromiseNetwork, folder: Path) -> None:
        self.spec = spec
        self._folder = folder
        streams, outputs = list(spec.document["streams"]), list(spec.document["outputs"])
        self.http_port, *ports = free_ports(1 + len(streams) + len(outputs))
        self._stream_ports = dict(zip(streams, ports, strict=False))
        self._output_ports = dict(zip(outputs, ports[len(streams) :], strict=True))
        self.samples = {name: self._write_sample(name, i) for i, name in enumerate(streams)}
        self.network: Network = read_network(self.file(Contender("qos", "qos", is_ours=True), None))

    def file(self, contender: Contender, memory_bytes: int | None) -> Path:
        """Write the network file of a contender: a naive one blocks every stream, and has little memory."""
        data = json.loads(json.dumps(self.spec.document))
        data["http"] = {"listen": f"127.0.0.1:{self.http_port}"}
        data["log"] = {"level": "error"}
        data["scheduler"] = {"policy": contender.policy}
        if memory_bytes is not None:
            data["engine"]["memory"] = f"{memory_bytes}B"
        for name, stream in data["streams"].items():
            at = f"127.0.0.1:{self._stream_ports[name]}"
            stream["source"] = {"tcp": at, "format": self.spec.format}
            if not contender.is_ours:
                stream["overload"] = "block"
            if self.has_short_buffers(contender):
                stream["source"]["receive_buffer"] = RECEIVE_BUFFER
        for name, output in data["outputs"].items():
            at = f"127.0.0.1:{self._output_ports[name]}"
            output["sink"] = {"tcp": at, "format": "arrow", "when_slow": "block", "buffer": "64MiB"}
        file = self._folder / f"{contender.name}.yaml"
        file.write_text(json.dumps(data, indent=1))
        return file

    def has_short_buffers(self, contender: Contender) -> bool:
        """Tell whether the kernel's buffers are short. Rows that wait for the daemon would get old there unseen. Many
        rows of ndjson need long ones: with short ones sender and daemon would wait for each other."""
        waits = not contender.is_ours and contender.manner in ("direct", "oldest", "newest")
        return waits or self.spec.format == "arrow"

    def stream_specs(self, per_s: Mapping[str, float]) -> list[dict[str, Any]]:
        return [
            {"name": name, "port": port, "time": "ts", "per_s": per_s[name], "sample": str(self.samples[name]),
             "format": self.spec.format}
            for name, port in self._stream_ports.items()
        ]  # fmt: skip

    def output_specs(self, warm_s: float) -> list[dict[str, Any]]:
        found = []
        for o in self.network.outputs:
            found.append({
                "name": o.name, "port": self._output_ports[o.name], "times": list(self.spec.times_of(o.name)),
                "warm_s": warm_s, "latency": latency_points(o), "value": worth_of(o, OTHERS_WORTH),
            })  # fmt: skip
            if o.name in self.spec.windows:
                found[-1]["rows"] = str(self.rows_file(o.name))
        return found

    def rows_file(self, output: str) -> Path:
        """Return the file with the windows that the reader of an output received."""
        return self._folder / f"{output}.rows.arrow"

    def _write_sample(self, name: str, number: int) -> Path:
        random = np.random.default_rng([self.spec.seed, number])
        v = random.random(SAMPLE_ROWS) * 100
        if self.spec.skew:
            v = random.lognormal(0.0, self.spec.skew, SAMPLE_ROWS)
        columns: dict[str, Any] = {
            "ts": pa.array(np.zeros(SAMPLE_ROWS, np.int64)).cast(arrow_type(Type.TIMESTAMP, "ns")),
            "id": pa.array(np.arange(SAMPLE_ROWS)),
            "k": pa.array([f"k{i}" for i in random.integers(0, self.spec.keys, SAMPLE_ROWS).tolist()]),
            "v": pa.array(np.round(v, 4)),
            "size": pa.array(random.integers(1, 1_000, SAMPLE_ROWS).astype(np.int32)),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        file = self._folder / f"{name}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return file
