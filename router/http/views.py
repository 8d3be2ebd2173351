"""Views over HTTP: ``/api/v1/views`` lists them, ``/api/v1/views/NAME?where=...&limit=`` answers with rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from catalog.config.words import did_you_mean
from catalog.errors import AuroraError
from router.codecs.ndjson import NdjsonEncoder
from router.http.answers import RequestError, json_answer
from router.http.operations import VIEW_LIMIT, VIEW_WHERE
from storage.train import Train


@dataclass(frozen=True)
class ViewQueries:
    """What the daemon answers about its views. Any thread."""

    listing: Callable[[], Sequence[Mapping[str, Any]]]
    rows: Callable[[str, str], Train]  # a view and a condition, empty for none; raises AuroraError


class ViewHandlers:
    def __init__(self, queries: ViewQueries, check_tap: Callable[[Request, str], None]) -> None:
        self._queries = queries
        self._check_tap = check_tap

    def list_views(self, _: Request) -> Response:
        return json_answer({"views": list(self._queries.listing())})

    def get_view(self, request: Request) -> Response:
        name, where, limit = request.path_params["name"], VIEW_WHERE.read(request), VIEW_LIMIT.read(request)
        self._check_tap(request, name)
        names = [view["name"] for view in self._queries.listing()]
        if name not in names:
            raise RequestError(404, f"there is no view '{name[:200]}'", did_you_mean(name[:200], names))
        try:
            found = self._queries.rows(name, where)
        except AuroraError as error:
            raise RequestError(400, str(error), getattr(error, "hint", "")) from error
        shown = found.slice(max(0, found.count - limit), found.count)  # the newest
        lines = NdjsonEncoder(found.schema).encode(shown).splitlines()
        rows = [orjson.Fragment(line) for line in lines]
        return json_answer({"view": name, "found": found.count, "rows": rows})
