"""A network as SVG: one file without scripts or fonts, for light and dark pages, with names on hover.

Streams are green pills, boxes are white with their kind, outputs are blue with their latency graph. Every text comes
from a network file and is escaped.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise

from engine.lab.draw.layout import LayoutItem, arrange, place
from engine.lab.draw.sketch import Drawing, DrawnShape

MARGIN = 24.0
CHANNEL = 72.0  # between two layers
GAP = 16.0  # between two shapes of a layer
ROW = 20.0  # between two ports
CHARACTER = 6.9  # the greatest mean width of a character of the detail's size on common systems
MAX_CHARACTERS = 34
SPARK_WIDTH, SPARK_HEIGHT = 64.0, 22.0

# Colours are in the classes, because rsvg, Inkscape and resvg do not support CSS variables.
_STYLE = """
text { font-family: system-ui, "Segoe UI", Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #1f2933; }
.title { font-size: 13px; font-weight: 600; }
.detail, .port { font-size: 11px; fill: #66757f; }
.page { fill: #f7f9fb; }
.shape { stroke-width: 1.4; }
.stream { fill: #e3f5e9; stroke: #2f9e5b; }
.box { fill: #ffffff; stroke: #b8c4ce; }
.output { fill: #e2effb; stroke: #2478c2; }
.link { fill: none; stroke: #8899a6; stroke-width: 1.5; }
.link:hover { stroke: #2478c2; stroke-width: 3; }
.head, .dot { fill: #8899a6; }
.axis { stroke: #b8c4ce; stroke-width: 1; }
.graph { fill: none; stroke: #2478c2; stroke-width: 1.8; stroke-linejoin: round; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .detail, .port { fill: #9aa7b2; }
  .page { fill: #12171d; }
  .stream { fill: #14301f; stroke: #4cc380; }
  .box { fill: #1d242c; stroke: #43505c; }
  .output { fill: #11293f; stroke: #58a6ee; }
  .link { stroke: #6b7986; }
  .head, .dot { fill: #6b7986; }
  .axis { stroke: #43505c; }
  .graph { stroke: #58a6ee; }
}
"""


def draw_svg(sketch: Drawing) -> str:
    layers = arrange(sketch)
    place(layers, _height, _inset, GAP)
    lefts: list[float] = []
    x = MARGIN
    for layer in layers:
        lefts.append(x)
        x += max((_width(i.shape) for i in layer if i.shape), default=0.0) + CHANNEL
    width = x - CHANNEL + MARGIN
    height = max(i.y + _height(i) for layer in layers for i in layer) + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="network">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0,0.5 L8,4 L0,7.5 Z"/></marker></defs>',
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}" rx="10"/>',
    ]
    items = [item for layer in layers for item in layer if item.shape is not None]
    ports = {(s.number, i): f"{s.title}.{p}" if p else s.title for s in sketch.shapes for i, p in enumerate(s.ports)}
    for item in items:
        parts += [_link(_route(item, s.target_port, lefts), ports[s.net], item) for s in item.before]
    parts += [_shape(item, lefts[item.layer]) for item in items]
    return "\n".join([*parts, "</svg>", ""])


def _height(item: LayoutItem) -> float:
    if item.shape is None:
        return 6.0
    return 46.0 + ROW * (max(1, item.shape.inputs, len(item.shape.ports)) - 1)


def _inset(item: LayoutItem, port: int) -> float:
    return 3.0 if item.shape is None else 23.0 + ROW * port


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def _width(shape: DrawnShape) -> float:
    words = max(len(_shortened(shape.title)) * 1.22, len(_shortened(shape.detail))) * CHARACTER
    ports = max((len(p) for p in shape.ports), default=0) * CHARACTER
    spark = SPARK_WIDTH + 12 if shape.qos is not None and shape.qos.latency is not None else 0
    return max(96.0, 28 + words + (ports + 14 if ports else 0) + spark)


def _route(item: LayoutItem, port: int, lefts: list[float]) -> list[tuple[float, float]]:
    """List the points from the port where the net begins, through its waypoints, to this input."""
    points = [(lefts[item.layer] - 1, MARGIN + item.y + _inset(item, port))]
    segment = next(s for s in item.before if s.target_port == port)
    while segment.source.shape is None:
        way = segment.source
        points.append((lefts[way.layer], MARGIN + way.y + _inset(way, 0)))
        segment = way.before[0]
    start = segment.source
    assert start.shape is not None
    points.append((lefts[start.layer] + _width(start.shape), MARGIN + start.y + _inset(start, segment.port)))
    return points[::-1]


def _link(points: list[tuple[float, float]], origin: str, item: LayoutItem) -> str:
    assert item.shape is not None
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        # A column is as wide as its boxes: run flat through it to the channel, and bend there.
        bend = max(x0, x1 - CHANNEL)
        half = (x1 - bend) / 2
        path += f" H{bend:.1f} C{bend + half:.1f},{y0:.1f} {x1 - half:.1f},{y1:.1f} {x1:.1f},{y1:.1f}"
    name = escape(f"{origin} → {item.shape.title}")
    return f'<path class="link" d="{path}" marker-end="url(#head)"><title>{name}</title></path>'


def _shape(item: LayoutItem, left: float) -> str:
    shape = item.shape
    assert shape is not None
    top, width, height = MARGIN + item.y, _width(shape), _height(item)
    radius = {"stream": 23, "box": 8, "output": 8}[shape.role]
    parts = [
        f"<g><title>{escape(shape.tip)}</title>",
        f'<rect class="shape {shape.role}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{radius}"/>',
        f'<text class="title" x="{left + 14:.1f}" y="{top + 20:.1f}">{escape(_shortened(shape.title))}</text>',
        f'<text class="detail" x="{left + 14:.1f}" y="{top + 36:.1f}">{escape(_shortened(shape.detail))}</text>',
    ]
    for port, name in enumerate(shape.ports):
        y = top + _inset(item, port)
        if name:
            label = f'<text class="port" text-anchor="end" x="{left + width - 9:.1f}" y="{y + 4:.1f}">'
            parts.append(f"{label}{escape(name)}</text>")
            parts.append(f'<circle class="dot" cx="{left + width:.1f}" cy="{y:.1f}" r="2.5"/>')
    parts.append(_spark(shape, left + width - SPARK_WIDTH - 12, top + (height - SPARK_HEIGHT) / 2))
    return "".join([*parts, "</g>"])


def _spark(shape: DrawnShape, left: float, top: float) -> str:
    """Draw the latency graph from no delay to a fifth beyond its last corner."""
    if shape.qos is None or shape.qos.latency is None:
        return ""
    graph = shape.qos.latency
    end = (graph.points[-1][0] or 1.0) * 1.2
    corners = [(0.0, graph.utility(0)), *graph.points, (end, graph.points[-1][1])]
    points = " ".join(
        f"{left + x / end * SPARK_WIDTH:.1f},{top + (1 - y) * (SPARK_HEIGHT - 3) + 1:.1f}" for x, y in corners
    )
    base = top + SPARK_HEIGHT
    axis = f'<line class="axis" x1="{left:.1f}" y1="{base:.1f}" x2="{left + SPARK_WIDTH:.1f}" y2="{base:.1f}"/>'
    return f'{axis}<polyline class="graph" points="{points}"/>'
