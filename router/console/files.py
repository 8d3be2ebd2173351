"""The files of the page, read once and served from memory."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from router.http.answers import HEADERS, RequestError

BUILT = Path(__file__).with_name("built")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'self'; worker-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


class PageFiles:
    """Serves ``built/``. A browser asks again each time, and gets 304 when it has the file."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}  # by name: content, type, tag

    async def page(self, request: Request) -> Response:
        return self._answer(request, "index.html")

    async def file(self, request: Request) -> Response:
        return self._answer(request, request.path_params["name"])

    def _answer(self, request: Request, name: str) -> Response:
        content, kind, tag = self._read(name)
        headers = {**HEADERS, "Content-Type": kind, "ETag": tag, "Cache-Control": "no-cache",
                   "Content-Security-Policy": POLICY}  # fmt: skip
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    def _read(self, name: str) -> tuple[bytes, str, str]:
        if name not in self._files:
            known = {path.name: path for path in BUILT.iterdir() if path.suffix in TYPES}
            if name not in known:
                raise RequestError(404, f"the page has no file '{name[:100]}'")
            content = known[name].read_bytes()
            self._files[name] = (content, TYPES[known[name].suffix], f'"{sha256(content).hexdigest()[:20]}"')
        return self._files[name]
