"""The report: one HTML page with every figure. Plots are embedded; it has no script and needs no other file."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from engine.lab.figures.figure import HOLDS, PAPERS
from engine.lab.figures.plot import picture
from engine.lab.figures.record import FigureRecord
from engine.lab.figures.terminal import number, rows
from engine.simulate.report import PlotError


def page(records: Sequence[FigureRecord]) -> str:
    css = (files("engine.lab.figures") / "page.css").read_text(encoding="utf-8")
    by_name: dict[str, list[FigureRecord]] = {}
    for record in records:
        by_name.setdefault(record.name, []).append(record)
    parts = [_head(records, len(by_name)), _verdicts(by_name)]
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
    holds = sum(r.verdict.word == HOLDS for r in records)
    share = holds / max(1, len(records))
    machines = list(dict.fromkeys(r.machine.rsplit(", load", 1)[0] for r in records))
    minutes = sum(r.seconds for r in records) / 60
    days = sorted({r.when[:10] for r in records})
    quick = " A quick look: shorter runs than the report's." if any(r.quick for r in records) else ""
    return (
        "<h1>The figures of the papers</h1>"
        '<p class="soft">Every figure that the papers behind aurorad print, run again on the engine itself and in '
        f"its simulator (simulated). Made by <code>aurorad bench figures --report DIR</code>.{quick}</p>"
        '<div class="score">'
        f"<div><b>{figures}</b><span>figures</span></div>"
        f"<div><b>{len(records)}</b><span>runs</span></div>"
        f"<div><b>{holds}</b><span>claims hold ({share:.0%})</span></div>"
        f"<div><b>{len(records) - holds}</b><span>differ</span></div>"
        f"<div><b>{minutes:.0f} min</b><span>to measure</span></div></div>"
        f'<p class="soft">{escape("; ".join(machines))}; {escape(" to ".join(dict.fromkeys((days[0], days[-1]))))}. '
        "Compare shapes and ratios: absolute times say more about the machine.</p>"
        if records
        else "<h1>The figures of the papers</h1><p>Nothing has been measured yet.</p>"
    )


def _verdicts(by_name: dict[str, list[FigureRecord]]) -> str:
    lines = []
    for name, of_figure in by_name.items():
        words = " ".join(_word(r.verdict.word, f"{r.engine}: {r.verdict.word}") for r in of_figure)
        first = of_figure[0]
        lines.append(
            f'<tr><td><a href="#{name}">{name}</a></td><td>{escape(first.figure.title)}</td><td>{words}</td></tr>'
        )
    return (
        '<table class="verdicts"><thead><tr><th>figure</th><th>what is shown</th><th>the claim</th></tr></thead><tbody>'
        + "".join(lines)
        + "</tbody></table>"
    )


def _word(word: str, text: str) -> str:
    return f'<span class="word {word}">{escape(text)}</span>'


def _card(name: str, of_figure: Sequence[FigureRecord]) -> str:
    figure = of_figure[0].figure
    wide = " wide" if len(of_figure) == 1 or max(len(r.measured.panels) for r in of_figure) > 1 else ""
    parameters = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in figure.parameters.items())
    doc = escape(of_figure[0].doc.strip().partition("\n")[2].strip())
    return (
        f'<section class="card" id="{name}"><header><span class="number">{name}</span>'
        f"<h3>{escape(figure.title)}</h3></header>"
        f'<div class="claim"><b>The paper</b>{escape(figure.claim)}</div>'
        f'<div class="engines{wide}">{"".join(map(_engine, of_figure))}</div>'
        f"<details><summary>The experiment</summary>"
        f'<table class="parameters">{parameters}</table><p class="doc">{_flow(doc)}</p></details></section>'
    )


def _flow(doc: str) -> str:
    """Join the lines of each paragraph, and mark up code."""
    text = "\n\n".join(" ".join(part.split()) for part in doc.split("\n\n"))
    return re.sub(r"``(.+?)``", r"<code>\1</code>", text)


def _engine(record: FigureRecord) -> str:
    plot = _plot(record)
    checks = "".join(
        f"<li>{escape(c.seen)}</li>" if c.ok else f'<li><span class="not">not so:</span> {escape(c.seen)}</li>'
        for c in sorted(record.verdict.checks, key=lambda c: c.ok)
    )
    explained = record.figure.differs.get(record.engine, "") if record.verdict.word != HOLDS else ""
    reason = f"<p><b>Why:</b> {escape(explained)}</p>" if explained else ""
    numbers = "".join(f"<p>{escape(k)}: {number(v)}</p>" for k, v in record.measured.numbers.items())
    tables = "".join(_table(rows(p), p.title or p.y) for p in record.measured.panels)
    return (
        f'<div class="engine"><h4>{_word(record.verdict.word, record.verdict.word)}{escape(record.engine)} engine</h4>'
        f'{plot}<div class="why"><ul>{checks}</ul>{reason}</div>'
        f'<details><summary>The numbers</summary><div class="data">{tables}{numbers}'
        f'<p class="soft">{record.seconds:.0f} s on {record.when}; {escape(record.machine)}</p></div></details></div>'
    )


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
