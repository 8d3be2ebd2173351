"""A network as a picture: in the terminal, as SVG, or as a list. It needs no Graphviz.

``sketch`` turns a network into shapes and links, ``layout`` computes where they stand, ``text`` and ``svg`` draw them.
"""

from __future__ import annotations

from engine.lab.draw.sketch import sketch
from engine.lab.draw.svg import draw_svg
from engine.lab.draw.text import draw_list, draw_text

__all__ = ["draw_list", "draw_svg", "draw_text", "sketch"]
