"""The generated pages of docs/ are what the code says today. ``make docs`` writes them."""

from __future__ import annotations

import pytest

from tests.docs.write import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), f"run: make docs (docs/{name} is out of date)"
