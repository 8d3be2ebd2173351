"""``python -m tests.docs.write``: write the generated pages of docs/ (``make docs``)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.docs import page_boxes, page_figures, page_functions, page_metrics, page_network_file, page_policies

DOCS = Path(__file__).parents[2] / "docs"
PAGES: dict[str, Callable[[], str]] = {
    "boxes.md": page_boxes.page,
    "figures.md": page_figures.page,
    "functions.md": page_functions.page,
    "metrics.md": page_metrics.page,
    "network-file.md": page_network_file.page,
    "policies.md": page_policies.page,
}


def main() -> None:
    for name, page in PAGES.items():
        path = DOCS / name
        text = page()
        changed = not path.exists() or path.read_text() != text
        path.write_text(text)
        sys.stdout.write(f"{'wrote' if changed else 'kept '} docs/{name}\n")


if __name__ == "__main__":
    main()
