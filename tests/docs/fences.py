"""The fenced blocks of the documents, and what each says about itself.

The info string of a fence is its language and, behind it, how a test treats the block:

    sh                        run it; it must exit 0
    sh exit: 78               run it; its last command must exit 78
    sh until: TEXT            run it in the background while the next blocks run; it must print TEXT by the end
    text shows                every line of it is in the output of the block before
    yaml                      a network file, or sections of one: it must be valid
    python                    execute it
    ... file: PATH            a whole file; test_contributing.py puts it there and runs the tests of its kind
    ... elsewhere: TEST       another test runs it
    ... norun: REASON         nobody runs it; test_snippets.py counts these
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    "README.md", "CONTRIBUTING.md", "GUARANTEES.md", "CHANGELOG.md",
    "clients/python/README.md", "clients/spark/README.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]  # fmt: skip
BARE = re.compile(r"(?m)^```")
_FENCE = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Fence:
    document: str
    line: int
    language: str
    mode: str  # run, exit, until, shows, file, elsewhere, norun
    argument: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def fences(document: str) -> list[Fence]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return [_fence(document, text, match) for match in _FENCE.finditer(text)]


def _fence(document: str, text: str, match: re.Match[str]) -> Fence:
    language, _, rest = match["info"].strip().partition(" ")
    mode, _, argument = rest.partition(": ")
    return Fence(document, text.count("\n", 0, match.start()) + 1, language, mode or "run", argument, match["text"])
