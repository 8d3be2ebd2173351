"""The report: one HTML page with every figure. Plots are embedded; it has no script and needs no other file."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from engine.lab.figures.figure import DIFFERS, HOLDS, PAPERS, REAL, SHAPE, SIMULATED, WORDS
from engine.lab.figures.outcome import Held
from engine.lab.figures.plot import picture
from engine.lab.figures.record import FigureRecord
from engine.lab.figures.terminal import number, rows
from engine.simulate.report import PlotError

ABOUT = """ <p>A scheduling paper is a promise that somebody else can repeat. This page repeats the promises of the
papers behind aurorad, on the engine itself (<i>real</i>, in processor time) and on its own scheduler under a virtual
clock (<i>simulated</i>).</p> <p>A paper never prints all its settings. We use what it prints as it stands. What it
leaves out is listed with every figure, with our value and the reason. Then we move it: each such setting alone at half
and at double, then several at once. A claim that survives is a property of the algorithm. A claim that needs one lucky
setting is a property of that setting, and the page says which one. Stars and dotted lines in the plots are the numbers
that the papers print; bands are 95 % intervals of the mean over the seeds.</p>
"""


def page(records: Sequence[FigureRecord]) -> str:
    css = (files("engine.lab.figures") / "page.css").read_text(encoding="utf-8")
    by_name: dict[str, list[FigureRecord]] = {}
    for record in records:
        by_name.setdefault(record.name, []).append(record)
    parts = [_head(records, len(by_name)), _verdicts(by_name), _errata(by_name)]
    paper = ""
    for name, of_figure in by_name.items():
        if name.split(".")[0] != paper:
            paper = name.split(".")[0]
            parts.append(f"<h2>{paper}: {escape(PAPERS[paper])}</h2>")
        parts.append(_card(name, of_figure))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>aurorad: the figures of the papers</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>\n{css}</style></head>\n<body><main>\n" + "\n".join(parts) + "\n</main></body></html>\n"
    )


def _head(records: Sequence[FigureRecord], figures: int) -> str:
    if not records:
        return "<h1>The figures of the papers</h1><p>Nothing has been measured yet.</p>"
    runs = sum(len(r.runs) for r in records)
    machines = list(dict.fromkeys(r.machine.rsplit(", load", 1)[0] for r in records))
    minutes = sum(r.seconds for r in records) / 60
    days = sorted({r.when[:10] for r in records})
    quick = " A quick look: shorter and fewer runs than the report's." if any(r.quick for r in records) else ""
    words = {word: sum(r.outcome.word == word for r in records) for word in (HOLDS, SHAPE, DIFFERS)}
    scores = "".join(f"<div><b>{count}</b><span>{word}</span></div>" for word, count in words.items())
    meanings = "".join(f"<tr><td>{_word(word, word)}</td><td>{escape(text)}</td></tr>" for word, text in WORDS.items())
    return (
        f'<h1>The figures of the papers</h1>{ABOUT}<div class="score">'
        f"<div><b>{figures}</b><span>figures and claims</span></div>"
        f"<div><b>{runs:,}</b><span>runs, {minutes:.0f} min</span></div>{scores}</div>"
        f'<table class="parameters">{meanings}</table>'
        f'<p class="soft">Made by <code>aurorad bench figures --report DIR</code>.{quick} '
        f"{escape('; '.join(machines))}; {escape(' to '.join(dict.fromkeys((days[0], days[-1]))))}. "
        "Compare shapes and ratios: absolute times say more about the machine.</p>"
    )


def _verdicts(by_name: dict[str, list[FigureRecord]]) -> str:
    lines = []
    for name, of_figure in by_name.items():
        by_engine = {r.engine: r for r in of_figure}
        cells = "".join(f"<td>{_score(by_engine.get(engine))}</td>" for engine in (REAL, SIMULATED))
        title = escape(of_figure[0].figure.title)
        lines.append(f'<tr><td><a href="#{name}">{name}</a></td><td>{title}</td>{cells}</tr>')
    return (
        '<table class="verdicts"><thead><tr><th>figure</th><th>what is shown</th><th>real engine</th><th>simulated</th>'
        "</tr></thead><tbody>" + "".join(lines) + "</tbody></table>"
    )


def _score(record: FigureRecord | None) -> str:
    if record is None:
        return ""
    outcome = record.outcome
    return f'{_word(outcome.word, outcome.word)} <span class="soft">{outcome.held} of {outcome.variations}</span>'


def _errata(by_name: dict[str, list[FigureRecord]]) -> str:
    found = {name: of[0].figure.erratum for name, of in by_name.items() if of[0].figure.erratum}
    if not found:
        return ""
    lines = "".join(f'<li><a href="#{name}">{name}</a>: {escape(text)}</li>' for name, text in found.items())
    return f"<h2>Errata: what the papers print and cannot mean</h2><ul>{lines}</ul>"


def _word(word: str, text: str) -> str:
    return f'<span class="word {word}">{escape(text)}</span>'


def _card(name: str, of_figure: Sequence[FigureRecord]) -> str:
    figure = of_figure[0].figure
    wide = " wide" if len(of_figure) == 1 or max(len(r.measured.panels) for r in of_figure) > 1 else ""
    printed = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in figure.printed.items())
    unprinted = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(str(s.default))}</td>"
        f"<td>{escape(', '.join(map(str, s.swept)))}</td><td>{escape(s.why)}</td></tr>"
        for name, s in figure.unprinted.items()
    )
    doc = escape(of_figure[0].doc.strip().partition("\n")[2].strip())
    erratum = f'<div class="claim erratum"><b>Erratum</b>{escape(figure.erratum)}</div>' if figure.erratum else ""
    return (
        f'<section class="card" id="{name}"><header><span class="number">{name}</span>'
        f"<h3>{escape(figure.title)}</h3></header>"
        f'<div class="claim"><b>The paper</b>{escape(figure.claim)}</div>{erratum}'
        f'<div class="engines{wide}">{"".join(map(_engine, of_figure))}</div>'
        f'<details><summary>The experiment</summary><p class="doc">{_flow(doc)}</p>'
        f'<p><b>Printed by the paper, used as printed</b></p><table class="parameters">{printed}</table>'
        "<p><b>Not printed: our value, the values of the sweep, and why</b></p>"
        f'<table class="parameters">{unprinted}</table></details></section>'
    )


def _flow(doc: str) -> str:
    """Join the lines of each paragraph, and mark up code."""
    text = "\n\n".join(" ".join(part.split()) for part in doc.split("\n\n"))
    return re.sub(r"``(.+?)``", r"<code>\1</code>", text)


def _engine(record: FigureRecord) -> str:
    outcome = record.outcome
    statements = "".join(_statement(s) for s in outcome.statements)
    reason = f"<p><b>What we found:</b> {escape(record.finding)}</p>" if record.finding else ""
    numbers = "".join(f"<p>{escape(k)}: {number(v)}</p>" for k, v in record.measured.numbers.items())
    tables = "".join(_table(rows(p), p.title or p.y) for p in record.measured.panels)
    seeds = f"{outcome.seeds_held} of {outcome.seeds} seeds at our settings"
    return (
        f'<div class="engine"><h4>{_word(outcome.word, outcome.word)}{escape(record.engine)} engine '
        f'<span class="soft">holds in {outcome.held} of {outcome.variations} runs; {seeds}</span></h4>'
        f'{_plot(record)}{_paper(record)}<div class="why"><ul>{statements}</ul>{reason}</div>'
        f'<details><summary>The numbers</summary><div class="data">{tables}{numbers}'
        f'<p class="soft">{len(record.runs)} runs, {record.seconds:.0f} s, {record.when}; {escape(record.machine)}</p>'
        "</div></details></div>"
    )


def _statement(held: Held) -> str:
    """Say in how many runs a statement holds, and where it breaks."""
    reading = f"<i>{escape(held.reading)}</i>: " if held.reading else ""
    line = f"{reading}{escape(held.what)}: <b>{held.held} of {held.of}</b> ({escape(held.seen)})"
    if not held.broken:
        return f"<li>{line}</li>"
    places = "".join(f"<li>{escape(place)}</li>" for place in held.broken)
    return f"<li>{line}<details><summary>where it breaks</summary><ul>{places}</ul></details></li>"


def _paper(record: FigureRecord) -> str:
    """Lay our numbers beside the paper's."""
    if not record.figure.paper:
        return ""
    outcome = record.outcome
    lines = "".join(
        f"<tr><td>{escape(p.what)}</td><td>{p.value:g}</td><td>{escape(str(outcome.ours[p.what]))}</td>"
        f"<td>{'near' if outcome.is_near[p.what] else 'not near'}</td></tr>"
        for p in record.figure.paper
    )
    head = "<tr><th></th><th>the paper</th><th>ours</th><th></th></tr>"
    return f'<div class="data"><table>{head}{lines}</table></div>'


def _plot(record: FigureRecord) -> str:
    try:
        data = b64encode(picture(record, "svg")).decode()
    except PlotError as error:
        return f'<p class="soft">{escape(str(error))}</p>'
    about = escape(f"{record.name}, {record.engine}: {record.figure.title}", quote=True)
    one = ' class="one"' if len(record.measured.panels) == 1 else ""
    return f'<img{one} alt="{about}" src="data:image/svg+xml;base64,{data}">'


def _table(lines: list[list[str]], title: str) -> str:
    head, *body = lines
    return (
        f"<table><caption>{escape(title)}</caption><tr>{''.join(f'<th>{escape(c)}</th>' for c in head)}</tr>"
        + "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in line)}</tr>" for line in body)
        + "</table>"
    )
