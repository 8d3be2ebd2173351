"""Checks that need no box: clashing names, listeners on the same port, the event time of a stream, useless graphs."""

from __future__ import annotations

from collections.abc import Collection

from catalog.config.document import Document, Path
from catalog.config.models import NetworkFile, StreamModel, TcpSink, TcpSource
from catalog.config.read import Config
from catalog.config.units import Address
from catalog.config.words import did_you_mean
from catalog.errors import Problem
from catalog.qos import QoS
from catalog.schema import Schema, Type


def check_names(config: Config) -> list[Problem]:
    """Check that every name is used once: streams, boxes and outputs share one namespace."""
    problems: list[Problem] = []
    owner: dict[str, str] = {}
    sections: list[tuple[str, str, Collection[str]]] = [
        ("stream", "streams", config.file.streams),
        ("box", "boxes", config.file.boxes),
        ("output", "outputs", config.file.outputs),
    ]
    for kind, section, entries in sections:
        for name in entries:
            if name in owner:
                message = f"'{name}' is already the name of a {owner[name]}"
                hint = f"streams, boxes and outputs share one namespace: use another name, such as {name}_{kind[:3]}"
                problems.append(config.document.problem((section, name), message, hint, at_key=True))
            owner.setdefault(name, kind)
    return problems


def check_required(config: Config) -> list[Problem]:
    """Check that there is a stream and an output. Not reported where another problem already explains it.

    A network that is meant to be empty says so: ``streams: {}`` and ``outputs: {}``. A file that lost its end does not.
    """
    data = config.document.data
    if config.lacks_section or config.broken or (data.get("streams") == {} == data.get("outputs")):
        return []
    missing = [s for s, entries in (("streams", config.file.streams), ("outputs", config.file.outputs)) if not entries]
    return [config.document.problem((s,), f"a network needs {s}", "see configs/default.yaml") for s in missing]


def check_policy(config: Config, policies: Collection[str] | None) -> list[Problem]:
    policy = config.file.scheduler.policy
    if policies is None or policy in policies:
        return []
    path: Path = ("scheduler", "policy")
    return [config.document.problem(path, f"unknown policy '{policy}'", did_you_mean(policy, policies))]


def check_stop(config: Config) -> list[Problem]:
    engine = config.file.engine
    if engine.stop != "keep" or engine.data_dir is not None:
        return []
    message = "stop: keep needs a data_dir: without one nothing outlives the process"
    return [config.document.problem(("engine", "stop"), message, "write stop: close, or set engine.data_dir")]


def listeners(file: NetworkFile) -> list[tuple[Path, Address]]:
    """Return every address that this network would listen on, each with its place in the file."""
    found: list[tuple[Path, Address]] = []
    if file.http.listen is not None:
        found.append((("http", "listen"), file.http.listen))
    found += [
        (("streams", n, "source", "tcp"), s.source.tcp)
        for n, s in file.streams.items()
        if isinstance(s.source, TcpSource)
    ]
    found += [
        (("outputs", n, "sink", "tcp"), o.sink.tcp) for n, o in file.outputs.items() if isinstance(o.sink, TcpSink)
    ]
    return found


def check_listeners(config: Config) -> list[Problem]:
    problems: list[Problem] = []
    seen: list[tuple[Path, Address]] = []
    for path, address in listeners(config.file):
        other = next((p for p, a in seen if a.clashes(address)), None)
        if other is not None:
            where = ".".join(map(str, other))
            line = config.document.locate(other).line if other in config.document.values else 0
            there = f"on line {line}" if line else "by default"
            message = f"{'.'.join(map(str, path))} and {where} both listen on {address}"
            problems.append(
                config.document.problem(path, message, f"{where} is set {there}: give one of them another port")
            )
        seen.append((path, address))
    return problems


def check_access(config: Config) -> list[Problem]:
    """Refuse a listener that other machines reach without TLS and users, unless the file says that this is meant."""
    file = config.file
    if file.access.insecure:
        return []
    is_safe = file.access.tls is not None and bool(file.access.users)
    is_http_safe = is_safe or file.http.config_file is not None  # that file is checked when the daemon starts
    reached = listeners(file)
    if file.spark_port is not None:
        reached.append((("spark", "listen"), file.spark_port))
    problems = []
    for path, address in reached:
        if address.is_loopback or (is_http_safe if path[0] == "http" else is_safe) or _is_insecure(file, path):
            continue
        missing = " and ".join(
            what for what, is_there in (("TLS", file.access.tls), ("users", file.access.users)) if not is_there
        )
        message = f"{address} is reached by other machines and has no {missing}"
        hint = "set access.tls and access.users (docs/security.md), listen on 127.0.0.1, or write insecure: true"
        problems.append(config.document.problem(path, message, hint))
    return problems


def _is_insecure(file: NetworkFile, path: Path) -> bool:
    section, name = str(path[0]), str(path[1])
    if section == "streams":
        return isinstance(source := file.streams[name].source, TcpSource) and source.insecure
    if section == "outputs":
        return isinstance(sink := file.outputs[name].sink, TcpSink) and sink.insecure
    return file.http.insecure if section == "http" else file.spark.insecure


def check_python_path(config: Config) -> list[Problem]:
    """Refuse a folder of Python modules that does not exist."""
    named = config.file.engine.python_path
    folders = config.module_folders[len(config.module_folders) - len(named) :]
    return [
        config.document.problem(("engine", "python_path", i), f"{folder} is no folder")
        for i, folder in enumerate(folders)
        if not folder.is_dir()
    ]


def check_stream(name: str, stream: StreamModel, config: Config) -> tuple[Schema, list[Problem]]:
    """Return the stream's schema, and the problems of its event time."""
    document, path = config.document, ("streams", name)
    schema = stream.make_schema()
    problems = [*_check_case(path, schema, config), *_check_order(name, stream, schema, config)]
    if isinstance(stream.source, TcpSource) and (*path, "overload") not in document.values:
        message = f"'{name}' does not set overload: when more arrives than can be processed, its senders wait"
        hint = "write overload: block, shed (drop the tuples that cost the least utility) or spill (to disk)"
        problems.append(document.problem(path, message, hint, at_key=True, warning=True))
    if stream.time is None:
        if stream.slack_ns:
            hint = "name the field: time: ts"
            message = "slack has no effect without time: tuples ordered by arrival are never out of order"
            problems.append(document.problem((*path, "slack"), message, hint, warning=True))
        return schema, problems
    at = (*path, "time")
    if stream.time not in schema:
        hint = did_you_mean(stream.time, schema.names)
        problems.append(document.problem(at, f"the schema has no field '{stream.time}'", hint))
    elif schema[stream.time].type is not Type.TIMESTAMP:
        kind = schema[stream.time].type
        problems.append(document.problem(at, f"'{stream.time}' is a {kind}; the event time must be a timestamp"))
    elif schema[stream.time].nullable:
        message = f"'{stream.time}' may be NULL; the event time must not be"
        problems.append(document.problem(at, message, f"remove the ? from the type of {stream.time}"))
    return schema, problems


def _check_order(name: str, stream: StreamModel, schema: Schema, config: Config) -> list[Problem]:
    """Check the field that says the order of arrival."""
    at = ("streams", name, "order")
    if stream.order is None:
        return []
    if stream.order not in schema:
        hint = did_you_mean(stream.order, schema.names)
        return [config.document.problem(at, f"the schema has no field '{stream.order}'", hint)]
    field = schema[stream.order]
    if field.nullable or not (field.type.is_integer or field.type is Type.TIMESTAMP):
        message = (
            f"'{field.name}' is {field.type}{'?' if field.nullable else ''}: an order needs whole numbers or times"
        )
        return [config.document.problem(at, message, "name a field that is int, bigint or timestamp and never NULL")]
    return []


def usable_time(stream: StreamModel, schema: Schema) -> str | None:
    """Return the field of a stream's event time, if it can be one. Else ``check_stream`` has said why not."""
    field = schema[stream.time] if stream.time is not None and stream.time in schema else None
    return stream.time if field is not None and field.type is Type.TIMESTAMP and not field.nullable else None


def _check_case(path: Path, schema: Schema, config: Config) -> list[Problem]:
    """Check that no two fields differ only in case: SQL does not distinguish ``Price`` and ``price``."""
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for name in schema.names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            message = f"the fields '{other}' and '{name}' differ only in case: SQL treats them as the same"
            problems.append(config.document.problem((*path, "schema", name), message, at_key=True))
    return problems


def worthless_graphs(path: Path, qos: QoS, document: Document) -> list[Problem]:
    """Warn of graphs that are 0 everywhere: no delay and no share delivered gives such an output any utility."""
    graphs = {"latency": qos.latency, "loss": qos.loss, "value": qos.value}
    return [
        document.problem(
            (*path, kind),
            f"the {kind} graph is 0 everywhere: whatever this output delivers has no utility",
            "the scheduler serves it last and the shedder drops its tuples first; give some point a utility above 0",
            warning=True,
        )
        for kind, graph in graphs.items()
        if graph is not None and not graph.ys.any()
    ]
