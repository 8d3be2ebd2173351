"""Write a commented network file for a sample: one stream, one window, one output. It validates and runs as it is."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import NamedTuple

from catalog.config.units import format_duration
from catalog.errors import ExpressionError
from catalog.schema import Field, Schema, Type
from engine.lab.draft.sample import RowSample, SampleField, times_ns
from engine.operators.expressions import compile_expression

WINDOWS_S = (1, 10, 60, 600, 3_600, 86_400)
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
HOUR_NS = 3_600 * 10**9


class NetworkDraft(NamedTuple):
    """A network file as text, and what it was made of, for people."""

    text: str
    summary: str


class DraftPorts(NamedTuple):
    """Addresses for a network that runs on, such as ``127.0.0.1:9401``: where rows come in, and where results go."""

    rows: str
    results: str


def write_draft(
    sample: RowSample, file: str | None, now_ns: int, name: str | None = None, ports: DraftPorts | None = None
) -> NetworkDraft:
    """Write a network file for a sample. ``file`` None: the rows came by standard input. ``name``: of the stream.

    With ``ports`` the network is for a daemon that runs on: clients bring rows and read results.
    """
    stream = stream_name(name or file)
    time = sample.time
    by = _group(sample)
    box = f"{stream}_by_{by.name}" if by is not None else f"{stream}_counted"
    output = f"{stream}_summary" if ports is not None else "summary" if stream != "summary" else "results"
    lines = [
        *_head_lines(sample, file, ports),
        "streams:",
        f"  {stream}:",
        "    # The fields and their types. A ? behind a type allows NULL and a missing field. Check the guesses.",
        "    schema:",
        *_schema_lines(sample),
        *_time_lines(sample, time, now_ns),
        *_source_lines(sample, file, ports),
        "",
        "boxes:",
        *_window_lines(sample, stream, box, time, by),
        "",
        "outputs:",
        f"  {output}:",
        f"    from: {box}",
        *_sink_lines(ports),
    ]
    found = ", ".join(f"{f.name} {f.type}{'?' if f.nullable else ''}" for f in sample.fields)
    time_words = f"event time {time.name}" if time is not None else "no event time"
    unread = f"; not read: {_comment(', '.join(sample.left_out))}" if sample.left_out else ""
    summary = f"{_rows(sample)} of {sample.format}: {found}; {time_words}{unread}"
    return NetworkDraft("\n".join(lines) + "\n", summary)


def _head_lines(sample: RowSample, file: str | None, ports: DraftPorts | None) -> list[str]:
    about = "# docs/network-file.md has every key, docs/boxes.md every box, docs/functions.md every SQL function."
    if ports is not None:
        return [f"# A first network, made from {_rows(sample)}.", "#", about, ""]
    return [
        f"# A first network, made by `aurorad new` from {_rows(sample)} of {_comment(file or 'standard input')}.",
        "#",
        "#   aurorad validate FILE      check it: every error with its line",
        "#   aurorad run FILE           run it: it ends with the input",
        "#   aurorad test FILE          test it: the cases are in NAME.test.yaml beside it",
        "#",
        about,
        "",
        "http: {listen: off}         # 127.0.0.1:9400 has metrics and a live page, for a network that runs on",
        "log: {level: warning}       # info says more, on standard error",
        "",
    ]


def _source_lines(sample: RowSample, file: str | None, ports: DraftPorts | None) -> list[str]:
    if ports is not None:
        unit = f", timestamps: {sample.unit}" if sample.unit != "ns" else ""
        return [
            "    # Clients that connect here send rows.",
            f"    source: {{tcp: {_quoted(ports.rows)}, format: {sample.format}{unit}}}",
            "    # When more comes than can be processed, senders wait. shed: drop what costs the least utility.",
            "    overload: block",
            "    # After this silence the last window closes.",
            "    idle: 2s",
        ]
    return [
        "    # Where the rows come from. For a port write {tcp: 127.0.0.1:9401, format: ndjson}.",
        f"    source: {_source(sample, file)}",
    ]


def _sink_lines(ports: DraftPorts | None) -> list[str]:
    if ports is not None:
        return ["    # Clients that connect here read results.", f"    sink: {{tcp: {_quoted(ports.results)}}}"]
    return [
        "    # Where the results go: {file: results.csv}, or {tcp: 127.0.0.1:9411, format: ndjson} for clients.",
        "    sink: {stdout: table}",
    ]


def _rows(sample: RowSample) -> str:
    return f"{sample.rows} row" if sample.rows == 1 else f"{sample.rows} rows"


def stream_name(file: str | None) -> str:
    """Make the name of a stream from the name of a file."""
    stem = re.sub(r"[^A-Za-z0-9_]+", "_", PurePath(file).name.split(".")[0]).strip("_") if file else ""
    if not stem or not stem[0].isalpha() or stem.lower() in RESERVED:
        return f"rows_{stem}".rstrip("_") if stem else "rows"
    return stem[:40]


def _schema_lines(sample: RowSample) -> list[str]:
    lines = []
    for f in sample.fields:
        note = "   # only NULL was seen: its type is a guess" if not f.values else ""
        lines.append(f"      {_key(f.name)}: {f.type}{'?' if f.nullable else ''}{note}")
    lines += [f"      # {_comment(name)} is not read: {_comment(why)}" for name, why in sample.left_out.items()]
    return lines


def _time_lines(sample: RowSample, time: SampleField | None, now_ns: int) -> list[str]:
    if time is None:
        return ["    # No field looks like a time that is always there, so a row's time is when it arrives."]
    times = times_ns(sample, time)
    lines = ["    # The time of a row. Windows go by it, not by the clock.", f"    time: {_key(time.name)}"]
    newest_ns = disorder_ns = 0
    for at_ns in times:
        newest_ns = max(newest_ns, at_ns)
        disorder_ns = max(disorder_ns, newest_ns - at_ns)
    if disorder_ns:
        seconds = -(-disorder_ns // 10**9)
        lines.append("    # The rows are out of order by this much: a window waits this long for rows that are behind.")
        lines.append(f"    slack: {seconds}s")
    if newest_ns > now_ns + HOUR_NS:
        days = (newest_ns - now_ns) // (24 * HOUR_NS) + 366
        lines.append("    # The rows are from the future; without this they would be refused.")
        lines.append(f"    max_skew: {days}d")
    return lines


def _source(sample: RowSample, file: str | None) -> str:
    unit = f", timestamps: {sample.unit}" if sample.unit != "ns" else ""
    if file is None:
        return f"{{stdin: {sample.format}{unit}}}"
    return f"{{file: {_quoted(file)}, format: {sample.format}{unit}}}"


def _window_lines(
    sample: RowSample, stream: str, box: str, time: SampleField | None, by: SampleField | None
) -> list[str]:
    window_ns = _window_ns(sample, time)
    number = next((f for f in sample.fields if _is_measure(f)), None)
    select = {"rows": "count(*)"}
    if number is not None:
        select |= {f"avg_{number.name}": f"avg({_sql(number)})", f"max_{number.name}": f"max({_sql(number)})"}
    taken = {"window_start", "window_end", "window_time", by.name if by is not None else ""}
    chosen = ", ".join(f'{name}: "{sql}"' for name, sql in select.items() if name not in taken)
    return [
        f"  # One result for each {format_duration(window_ns)} of {time.name if time is not None else 'arrivals'}"
        + (f" and each {by.name}." if by is not None else "."),
        f"  {box}:",
        f"    aggregate: {stream}",
        f"    window: {{tumbling: {format_duration(window_ns)}}}",
        *([f"    by: [{_key(by.name)}]"] if by is not None else []),
        f"    select: {{{chosen}}}",
    ]


def _window_ns(sample: RowSample, time: SampleField | None) -> int:
    """Choose a window of which the sample has a few."""
    times = times_ns(sample, time) if time is not None else [0]
    span_s = (max(times) - min(times)) / 1e9
    return max([s for s in WINDOWS_S if s <= span_s / 2], default=WINDOWS_S[0]) * 10**9


def _group(sample: RowSample) -> SampleField | None:
    """Choose the text field whose values repeat the most: it names what the rows are about."""
    texts = [f for f in sample.fields if f.type is Type.STRING and f.values and _is_plain(f.name)]
    repeated = [f for f in texts if len(set(f.values)) < len(f.values)]
    return max(repeated, key=lambda f: (not f.nullable, len(set(f.values)) > 1), default=None)


def _is_measure(f: SampleField) -> bool:
    is_key = f.name.lower() == "id" or f.name.lower().endswith("_id")
    return f.type.is_numeric and bool(f.values) and _is_plain(f.name) and not is_key


def _is_plain(name: str) -> bool:
    return PLAIN.fullmatch(name) is not None


def _sql(f: SampleField) -> str:
    """Write a field in an expression: in backticks when SQL has another meaning for its name."""
    try:
        compile_expression(f.name, Schema((Field(f.name, f.type, f.nullable),)))
    except ExpressionError:
        return f"`{f.name}`"
    return f.name


def _key(name: str) -> str:
    return name if _is_plain(name) and name.lower() not in RESERVED else _quoted(name)


def _quoted(text: str) -> str:
    """Write a text as YAML, whatever is in it. ``${`` would be a variable."""
    escaped = "".join(
        f"\\{c}" if c in '"\\' else c if c.isprintable() else f"\\U{ord(c):08x}" for c in text.replace("${", "$${")
    )
    return f'"{escaped}"'


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:200]
