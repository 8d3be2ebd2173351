"""A network in the terminal, drawn with box-drawing characters.

Layers are columns. Between two columns lies a channel, in which each net (all lines from one port) turns on a track of
its own. Two nets must never share a piece of line. Vertically: nets whose spans overlap get different tracks.
Horizontally: if net A leaves on the row on which net B arrives, A must turn left of B's track. These constraints can
form a cycle; then the whole right layer moves down row by row until they do not. Where two nets cross, the vertical one
is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.lab.draw.layout import ArcSegment, LayoutItem, Net, arrange, place
from engine.lab.draw.sketch import Drawing, DrawnShape

UP, RIGHT, DOWN, LEFT = 1, 2, 4, 8
_LINES = " ╵╶╰╷│╭├╴╯─┴╮┤┬┼"  # indexed by the sum of the four directions above
_FRAMES = {"stream": "╭─╮│╰─╯", "box": "┌─┐│└─┘", "output": "╔═╗║╚═╝"}
_STYLES = {"stream": "\033[32m", "box": "", "output": "\033[36m", "line": "\033[2m"}
_RESET = "\033[0m"

MAX_DETAIL = 30


class TextCanvas:
    """A grid of characters without fixed size. Each line keeps its net, so that crossings are drawn as such."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, str]] = {}  # (row, column): character, style
        self.lines: dict[tuple[int, int], dict[Net, int]] = {}

    def write(self, row: int, column: int, text: str, style: str) -> None:
        for i, character in enumerate(text):
            self.cells[row, column + i] = (character, style)

    def horizontal(self, net: Net, row: int, start: int, end: int) -> None:
        self._line(net, [(row, c) for c in range(start, end + 1)], RIGHT, LEFT)

    def vertical(self, net: Net, column: int, start: int, end: int) -> None:
        self._line(net, [(r, column) for r in range(min(start, end), max(start, end) + 1)], DOWN, UP)

    def _line(self, net: Net, cells: list[tuple[int, int]], onward: int, back: int) -> None:
        for i, cell in enumerate(cells):
            there = self.lines.setdefault(cell, {})
            mask = (onward if i < len(cells) - 1 else 0) | (back if i else 0)
            there[net] = there.get(net, 0) | mask

    def render(self, colour: bool) -> str:
        sheet = {cell: (_glyph(nets), "line") for cell, nets in self.lines.items()} | self.cells
        width: dict[int, int] = {}
        for row, column in sheet:
            width[row] = max(width.get(row, -1), column)
        out = []
        for row in range(max(width, default=-1) + 1):
            cells = [sheet.get((row, c), (" ", "")) for c in range(width.get(row, -1) + 1)]
            out.append(_painted(cells) if colour else "".join(c for c, _ in cells).rstrip())
        return "\n".join(out)


def _glyph(nets: dict[Net, int]) -> str:
    masks = list(nets.values())
    return _LINES[masks[0]] if len(masks) == 1 else "│"


def _painted(cells: Iterable[tuple[str, str]]) -> str:
    out, style = [], ""
    for character, wanted in cells:
        if _STYLES.get(wanted, "") != style:
            style = _STYLES.get(wanted, "")
            out.append(_RESET + style)
        out.append(character)
    return "".join(out) + (_RESET if style else "")


def draw_text(sketch: Drawing, *, colour: bool = False) -> str:
    layers = arrange(sketch)
    place(layers, _height, _inset, 0)
    for layer in layers:
        _to_rows(layer)
    canvas = TextCanvas()
    column = 0
    for i, layer in enumerate(layers):
        width = max((_width(item.shape) for item in layer if item.shape), default=1)
        for item in layer:
            _draw_item(canvas, item, column, width)
        column += width
        if i < len(layers) - 1:
            column = _draw_channel(canvas, layer, layers[i + 1], column)
    return canvas.render(colour)


def _to_rows(layer: list[LayoutItem]) -> None:
    below = 0
    for item in layer:
        item.y = max(round(item.y), below)
        below = int(item.y + _height(item))


def _height(item: LayoutItem) -> int:
    return 1 if item.shape is None else 2 + max(2, item.shape.inputs, len(item.shape.ports))


def _inset(item: LayoutItem, port: int) -> int:
    return 0 if item.shape is None else 1 + port


def _detail(shape: DrawnShape) -> str:
    return shape.detail if len(shape.detail) <= MAX_DETAIL else shape.detail[: MAX_DETAIL - 1] + "…"


def _width(shape: DrawnShape) -> int:
    left = max(len(shape.title), len(_detail(shape)))
    right = max((len(p) + 2 for p in shape.ports if p), default=0)
    return left + right + 4


def _draw_item(canvas: TextCanvas, item: LayoutItem, column: int, width: int) -> None:
    row = int(item.y)
    if item.shape is None:
        canvas.horizontal(item.after[0].net, row, column - 1, column + width)
        return
    shape, own = item.shape, _width(item.shape)
    tl, top, tr, side, bl, bottom, br = tuple(_FRAMES[shape.role])
    canvas.write(row, column, tl + top * (own - 2) + tr, shape.role)
    for i in range(_height(item) - 2):
        text = (shape.title, _detail(shape))[i] if i < 2 else ""
        port = shape.ports[i] if i < len(shape.ports) else ""
        inside = f" {text}{port:>{own - 4 - len(text)}} "
        canvas.write(row + 1 + i, column, f"{side}{inside}{side}", shape.role)
    canvas.write(row + _height(item) - 1, column, bl + bottom * (own - 2) + br, shape.role)
    for segment in {s.port: s for s in item.after}.values():
        canvas.write(row + 1 + segment.port, column + own - 1, "├", shape.role)
        canvas.horizontal(segment.net, row + 1 + segment.port, column + own - 1, column + width)


def _draw_channel(canvas: TextCanvas, layer: list[LayoutItem], following: list[LayoutItem], start: int) -> int:
    """Route every net of a channel; return the column where the next layer begins."""
    segments = [s for item in layer for s in item.after]
    tracks = assign_tracks(segments)
    while tracks is None:
        for item in following:
            item.y += 1
        tracks = assign_tracks(segments)
    count = 1 + max(tracks.values(), default=-1)
    end = start + 2 * count + 3  # one column for the arrowhead, one on each side
    for segment in segments:
        out, into = _rows(segment)
        net = segment.net
        if out == into:
            canvas.horizontal(net, out, start, end - 1)
        else:
            x = start + 1 + 2 * tracks[net]
            canvas.horizontal(net, out, start, x)
            canvas.vertical(net, x, out, into)
            canvas.horizontal(net, into, x, end - 1)
        if segment.target.shape is not None:
            canvas.write(into, end - 1, "▶", "line")
    return end


def _rows(segment: ArcSegment) -> tuple[int, int]:
    out = int(segment.source.y) + _inset(segment.source, segment.port)
    return out, int(segment.target.y) + _inset(segment.target, segment.target_port)


def assign_tracks(segments: list[ArcSegment]) -> dict[Net, int] | None:
    """Assign a track to each net that turns, from left to right; None if the constraints form a cycle."""
    rows: dict[Net, list[int]] = {}
    leaves: dict[int, Net] = {}
    for segment in segments:
        out, into = _rows(segment)
        leaves[out] = segment.net
        rows.setdefault(segment.net, []).extend((out, into))
    before: dict[Net, set[Net]] = {net: set() for net in rows}  # nets that must turn left of this one
    for segment in segments:
        other = leaves.get(_rows(segment)[1])
        if other is not None and other != segment.net:
            before[segment.net].add(other)
    spans = {net: (min(r), max(r)) for net, r in rows.items()}
    tracks: dict[Net, int] = {}
    used: list[list[tuple[int, int]]] = []
    waiting = sorted(rows, key=lambda net: spans[net])
    while waiting:
        ready = [net for net in waiting if before[net] <= tracks.keys()]
        if not ready:
            return None
        for net in ready:
            track = 1 + max((tracks[b] for b in before[net]), default=-1)
            while track < len(used) and any(_overlap(spans[net], span) for span in used[track]):
                track += 1
            used.extend([] for _ in range(track + 1 - len(used)))
            if spans[net][0] != spans[net][1]:
                used[track].append(spans[net])
            tracks[net] = track
        waiting = [net for net in waiting if net not in tracks]
    return tracks


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def draw_list(sketch: Drawing) -> str:
    """Write one line a shape, for networks that are too wide for a drawing."""
    names = {s.number: s.title for s in sketch.shapes}
    ports = {(s.number, i): f"{s.title}.{p}" if p else s.title for s in sketch.shapes for i, p in enumerate(s.ports)}
    feeds: dict[int, list[str]] = {}
    for link in sketch.links:
        feeds.setdefault(link.target, []).append(ports[link.source, link.port])
    wide = max(len(n) for n in names.values())
    lines = []
    for shape in sketch.shapes:
        origin = f"  ◀ {', '.join(feeds[shape.number])}" if shape.number in feeds else ""
        lines.append(f"{shape.role:<6}  {shape.title:<{wide}}  {shape.detail}{origin}".rstrip())
    return "\n".join(lines)
