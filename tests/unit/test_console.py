"""The console's answers: the files of the page, the looks of open pages, the last hour, bad questions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.applications import Starlette
from starlette.types import Message

from catalog.errors import AuroraError
from catalog.legend import LEGEND
from router import console
from router.console.handlers import ConsoleHandlers, ConsoleQueries
from router.console.live import LivePages
from router.console.past import Past
from router.http.answers import RequestError, plain_answer

HERE = Path(console.__file__).parent
SOURCE, BUILT = HERE / "source", HERE / "built"


def tree_hash(folder: Path) -> str:
    """The same sum as in build.mjs."""
    found = sha256()
    files = [
        p for p in folder.rglob("*") if p.is_file() and "node_modules" not in p.parts and p.name != "made_from.json"
    ]
    for path in sorted(files, key=lambda p: str(p.relative_to(folder))):
        found.update(str(path.relative_to(folder)).encode() + b"\0")
        found.update(path.read_bytes())
    return found.hexdigest()


def test_the_built_page_is_made_from_this_source() -> None:
    made = orjson.loads((BUILT / "made_from.json").read_bytes())
    assert made == {"source": tree_hash(SOURCE), "built": tree_hash(BUILT)}, "run: make console"


def test_the_page_needs_nothing_from_elsewhere_and_writes_no_markup() -> None:
    page = (BUILT / "index.html").read_text() + "".join(
        p.read_text() for p in SOURCE.rglob("*.js") if "node_modules" not in p.parts
    )
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "innerHTML" not in page and "dangerouslySetInnerHTML" not in page, "names and values are text, never markup"


def test_the_legend_knows_the_words_of_the_heading() -> None:
    known = {word for term in LEGEND for word in term.word.split(", ")}
    heading = (SOURCE / "page.js").read_text().partition("const figures = [")[2].partition("];")[0]
    assert [word for word in re.findall(r'\["([a-z ]+)"', heading) if word not in known] == []


class Asked:
    """The console's routes, asked without a server."""

    def __init__(self) -> None:
        self.looks = 0
        self.handlers = ConsoleHandlers(
            ConsoleQueries(
                stats=self.stats,
                file=lambda: "streams: {}\n",
                words=dict,
                give_up=dict,
                superboxes=dict,
                what_if=self.what_if,
                draft=lambda asked: {"file": asked["rows"]},
                merge=lambda file: {"file": file},
                feed=lambda stream, rows: {"stream": stream, "rows": rows},
                trial=lambda file, rows: {"file": file, "rows": rows},
            )
        )
        self.app = Starlette(
            routes=self.handlers.routes(),
            exception_handlers={RequestError: lambda _, e: plain_answer(e.status, str(e), e.hint)},  # type: ignore[attr-defined]
        )

    def stats(self) -> Mapping[str, Any]:
        self.looks += 1
        return {"engine": {"now_ns": self.looks * 10}}

    def what_if(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if asked.get("factor") == -1:
            raise AuroraError("factor must be a number from 0 to 1000")
        return {"asked": asked}

    async def ask(
        self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        path, _, query = path.partition("?")
        sent: list[Message] = []
        bodies = [{"type": "http.request", "body": body or b"", "more_body": False}]

        async def receive() -> Message:
            return bodies.pop(0) if bodies else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "GET" if body is None else "POST", "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "headers": [(k.encode(), v.encode()) for k, v in (headers or {}).items()],
        }  # fmt: skip
        await self.app(scope, receive, send)
        found = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
        return sent[0]["status"], found, b"".join(m.get("body", b"") for m in sent[1:])


def ask(path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    return asyncio.run(Asked().ask(path, body, headers))


def test_the_page_and_its_files_are_served_with_a_strict_policy() -> None:
    status, headers, body = ask("/")
    assert status == 200 and headers["content-type"].startswith("text/html") and b"/console/page.js" in body
    assert "script-src 'self'" in headers["content-security-policy"]
    status, headers, _ = ask("/console/page.js")
    assert status == 200 and headers["content-type"].startswith("text/javascript")
    assert ask("/console/page.js", **{"if-none-match": headers["etag"]})[0] == 304
    for wrong in ("/console/nothing.js", "/console/made_from.json", "/console/..%2ffiles.py"):
        assert ask(wrong)[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/api/v1/past?at=x", None, 400, "a time in nanoseconds"),
        ("/api/v1/past?at=99999999999999999999", None, 400, "a time in nanoseconds"),
        ("/api/v1/what_if", b"{", 400, "not JSON"),
        ("/api/v1/what_if", b"[1]", 400, "must be a JSON object"),
        ("/api/v1/what_if", b'{"factor": -1}', 400, "factor must be"),
        ("/api/v1/trial", b'{"rows": []}', 400, "rows is an object"),
        ("/api/v1/draft", b'{"rows": "' + b"x" * 2**21 + b'"}', 413, "at most"),
    ],
)
def test_bad_questions_get_a_clear_answer(path: str, body: bytes | None, status: int, words: str) -> None:
    found, _, said = ask(path, body)
    assert found == status and words in said.decode()


def test_forecasts_and_trials_are_limited() -> None:
    async def crowd() -> list[int]:
        asked = Asked()
        asked.handlers._busy = 2
        return [(await asked.ask("/api/v1/what_if", b"{}"))[0]]

    assert asyncio.run(crowd()) == [503]


def test_the_past_gives_the_record_before_too_and_forgets_the_oldest() -> None:
    looks = iter(range(1, 1000))
    past = Past(lambda: {"engine": {"now_ns": 10 * next(looks)}, "filler": "x"}, most_bytes=10**9)
    assert past.at(5) == [] and past.times_ns() == []
    for _ in range(5):
        past.note()
    assert past.times_ns() == [10, 20, 30, 40, 50]
    assert [r["engine"]["now_ns"] for r in past.at(35)] == [20, 30]
    assert [r["engine"]["now_ns"] for r in past.at(3)] == [10]
    for _ in range(500):
        past.note()
    assert len(past.times_ns()) == 361
    small = Past(lambda: {"engine": {"now_ns": next(looks)}, "filler": "y" * 50}, most_bytes=200)
    for _ in range(50):
        small.note()
    assert 1 <= len(small.times_ns()) < 50


def test_pages_share_a_look_and_a_slow_one_gets_the_newest() -> None:
    async def watch() -> tuple[list[bytes], list[bytes], int]:
        looks = 0

        def stats() -> dict[str, int]:
            nonlocal looks
            looks += 1
            return {"look": looks}

        pages = LivePages(stats)
        one, two = pages._events(), pages._events()
        first = [await anext(one), await anext(one)]
        second = [await anext(two), await anext(two)]
        assert len(pages) == 2
        pages.end()
        first.append([event async for event in one][-1])
        second.append([event async for event in two][-1])
        return first, second, looks

    first, second, looks = asyncio.run(watch())
    assert first[1] == second[1] == b'event: stats\ndata: {"look":1}\n\n' and looks == 1
    assert first[2] == second[2] == b"event: stop\ndata: {}\n\n"
