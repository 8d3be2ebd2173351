"""A network as a picture: in the terminal, as SVG, or as a list. No Graphviz: three files, one layout.

``sketch`` says what is to be drawn, ``layout`` in which order and where, ``text`` and ``svg`` with what pen.
"""

from __future__ import annotations

from engine.draw.sketch import sketch
from engine.draw.svg import draw_svg
from engine.draw.text import draw_list, draw_text

__all__ = ["draw_list", "draw_svg", "draw_text", "sketch"]
