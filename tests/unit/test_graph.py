"""Drawings: the test reads the text drawing back, character by character, and must find exactly the network."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET

import pytest

from catalog.build import build_network
from catalog.network import Network
from engine.lab.draw import draw_list, draw_svg, draw_text, sketch
from engine.lab.draw.layout import arrange, crossings
from engine.lab.draw.sketch import Drawing
from tests.unit.network_kinds import KINDS

UP, RIGHT, DOWN, LEFT = (-1, 0), (0, 1), (1, 0), (0, -1)
OPENINGS = {
    "─": {LEFT, RIGHT},
    "│": {UP, DOWN},
    "╭": {RIGHT, DOWN},
    "╮": {LEFT, DOWN},
    "╰": {UP, RIGHT},
    "╯": {UP, LEFT},
    "├": {UP, DOWN, RIGHT},
    "┤": {UP, DOWN, LEFT},
    "┬": {LEFT, RIGHT, DOWN},
    "┴": {LEFT, RIGHT, UP},
    "┼": {UP, DOWN, LEFT, RIGHT},
}


def follow(sheet: list[str], row: int, column: int) -> set[tuple[int, int]]:
    """Follow the line from a box to the right; return the arrowheads that it reaches. It goes straight through a │."""
    ends: set[tuple[int, int]] = set()
    seen: set[tuple[int, int, tuple[int, int]]] = set()
    todo = [(row, column, RIGHT)]
    while todo:
        r, c, heading = todo.pop()
        r, c = r + heading[0], c + heading[1]
        if (r, c, heading) in seen:
            continue
        seen.add((r, c, heading))
        character = sheet[r][c]
        if character == "▶":
            ends.add((r, c))
        elif character == "│" and heading in (LEFT, RIGHT):
            todo.append((r, c, heading))
        else:
            back = (-heading[0], -heading[1])
            assert back in OPENINGS[character], f"a line breaks off at {r},{c}: {character}"
            todo += [(r, c, way) for way in OPENINGS[character] - {back}]
    return ends


def read_drawing(text: str, picture: Drawing) -> set[tuple[str, int, str, int]]:
    """Read (from, port, to, input) of each arrow. Names are unique and stand in the row of port 0."""
    lines = text.splitlines()
    width = max(map(len, lines)) + 1
    sheet = [line.ljust(width) for line in [*lines, ""]]
    at: dict[str, tuple[int, int, int]] = {}
    for shape in picture.shapes:
        [(row, left)] = [(r, i) for r, line in enumerate(sheet) if (i := line.find(f" {shape.title} ")) >= 0]
        frame = next(i for i in range(left + 1, width) if sheet[row][i] in "│├║")
        at[shape.title] = (row, left - 1, frame)
    found = set()
    for shape in picture.shapes:
        row, _, right = at[shape.title]
        for port in range(len(shape.ports)):
            if sheet[row + port][right] != "├":
                continue
            for end_row, end_column in follow(sheet, row + port, right):
                [(name, into)] = [
                    (s.title, end_row - at[s.title][0])
                    for s in picture.shapes
                    if at[s.title][1] == end_column + 1 and 0 <= end_row - at[s.title][0] < max(1, s.inputs)
                ]
                found.add((shape.title, port, name, into))
    return found


def links(picture: Drawing) -> set[tuple[str, int, str, int]]:
    names = {s.number: s.title for s in picture.shapes}
    return {(names[k.source], k.port, names[k.target], k.target_port) for k in picture.links}


def random_network(seed: int) -> Network:
    """Make a random network: streams, splits of up to four ports, merges of up to four inputs, outputs anywhere."""
    dice = random.Random(seed)
    streams = [f"s{i}" for i in range(dice.randint(1, 3))]
    places = list(streams)
    boxes: list[str] = []
    for i in range(dice.randint(0, 12)):
        kind = dice.choice(["pick", "split", "merge"])
        if kind == "pick":
            boxes.append(f"b{i}: {{pick: {dice.choice(places)}, where: x}}")
            places.append(f"b{i}")
        elif kind == "split":
            ports = [f"p{j}" for j in range(dice.randint(1, 4))]
            when = ", ".join(f"{p}: x" for p in ports)
            boxes.append(f"b{i}: {{split: {dice.choice(places)}, when: {{{when}}}}}")
            places += [f"b{i}.{p}" for p in ports]
        else:
            inputs = [dice.choice(places) for _ in range(dice.randint(2, 4))]
            boxes.append(f"b{i}: {{merge: [{', '.join(inputs)}]}}")
            places.append(f"b{i}")
    outputs = [f"o{i}: {{from: {dice.choice(places)}}}" for i in range(dice.randint(1, 6))]
    text = "engine: {share: false}\nstreams:\n" + "".join(f"  {s}: {{schema: {{x: int}}}}\n" for s in streams)
    text += "boxes:\n" + "".join(f"  {b}\n" for b in boxes) + "outputs:\n" + "".join(f"  {o}\n" for o in outputs)
    return build_network(text, KINDS, {})


@pytest.mark.parametrize("block", range(10))
def test_the_drawing_says_what_the_network_says(block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        picture = sketch(random_network(seed))
        text = draw_text(picture)
        assert read_drawing(text, picture) == links(picture), f"seed {seed}:\n{text}"


def test_a_chain_is_a_straight_line() -> None:
    text = """\
streams: {trades: {schema: {x: int}, source: {tcp: 9401}}}
boxes: {big: {pick: trades, where: x}}
outputs: {alerts: {from: big, qos: {deadline: 200ms, lossy: 30%}}}
"""
    assert draw_text(sketch(build_network(text, KINDS, {}))).splitlines() == [
        "╭──────────────╮     ┌────────┐     ╔════════════════════════════════╗",
        "│ trades       ├────▶│ big    ├────▶║ alerts                         ║",
        "│ ndjson :9401 │     │ pick x │     ║ in 200ms, keep 70% · read by … ║",
        "╰──────────────╯     └────────┘     ╚════════════════════════════════╝",
    ]


def test_colour_changes_no_character() -> None:
    picture = sketch(random_network(3))
    import re

    painted = re.sub(r"\033\[\d*m", "", draw_text(picture, colour=True))
    assert [line.rstrip() for line in painted.splitlines()] == draw_text(picture).splitlines()


def test_ordering_does_not_add_crossings() -> None:
    """The order is never worse than that of the file, and over many networks much better."""
    before = after = 0
    for seed in range(60):
        layers = arrange(sketch(random_network(seed)))
        now = crossings(layers)
        files = [sorted(layer, key=lambda item: item.shape.number if item.shape else 10**6) for layer in layers]
        before += crossings(files)
        after += now
    assert after < 0.6 * before


@pytest.mark.parametrize("seed", range(12))
def test_svg_is_well_formed_and_complete(seed: int) -> None:
    network = random_network(seed)
    root = ET.fromstring(draw_svg(sketch(network)))
    space = "{http://www.w3.org/2000/svg}"
    titles = {t.text for t in root.iter(f"{space}text") if t.get("class") == "title"}
    assert titles == {x.name for x in (*network.streams, *network.boxes, *network.outputs)}
    paths = [p for p in root.iter(f"{space}path") if p.get("class") == "link"]
    assert len(paths) == len(network.arcs)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    boxes = [r for r in root.iter(f"{space}rect") if "shape" in (r.get("class") or "")]
    places = [[float(r.get(k, 0)) for k in ("x", "y", "width", "height")] for r in boxes]
    for i, (x, y, w, h) in enumerate(places):
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
        for a, b, c, d in places[:i]:
            assert x >= a + c or a >= x + w or y >= b + d or b >= y + h, "two shapes overlap"


def test_svg_escapes_what_the_file_says() -> None:
    text = """\
streams: {s: {schema: {"<b>&": int}}}
boxes: {b: {pick: s, where: ""}}
outputs: {o: {from: b, qos: {prefer: "1 < 2 & '</svg><script>'"}}}
"""
    root = ET.fromstring(draw_svg(sketch(build_network(text, KINDS, {}))))
    assert any("</svg><script>" in (t.text or "") or "1 < 2 &" in (t.text or "") for t in root.iter())
    assert not [e for e in root.iter() if e.tag.endswith("script")]


def test_the_list_names_every_input() -> None:
    network = random_network(5)
    lines = draw_list(sketch(network)).splitlines()
    assert len(lines) == len(network.streams) + len(network.boxes) + len(network.outputs)
    for node, line in zip(network.boxes, lines[len(network.streams) :], strict=False):
        feeds = [network.arcs[a].name.partition("->")[0] for a in node.in_arcs]
        assert line.endswith(f"◀ {', '.join(feeds)}")


def test_a_large_network_is_drawn() -> None:
    boxes = [f"  b{i}: {{pick: {'s' if i % 5 == 0 else f'b{i - 1}'}, where: x}}" for i in range(500)]
    outputs = [f"  o{i}: {{from: b{i}}}" for i in range(4, 500, 5)]
    text = (
        "engine: {share: false}\nstreams: {s: {schema: {x: int}}}\nboxes:\n"
        + "\n".join(boxes)
        + "\noutputs:\n"
        + "\n".join(outputs)
        + "\n"
    )
    picture = sketch(build_network(text, KINDS, {}))
    assert draw_text(picture).count("▶") == 600
    assert draw_svg(picture).count('class="link"') == 600
