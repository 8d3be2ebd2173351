"""Ask a view: the last rows of each key, as the daemon has them now."""

from __future__ import annotations

import json
import ssl
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from aurorad_client.errors import ProtocolError, RefusedError, UnreachableError
from aurorad_client.settings import Auth, make_auth

Row = dict[str, Any]


def view(
    url: str,
    name: str,
    where: str = "",
    limit: int = 1_000,
    *,
    auth: Auth = None,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = 30.0,
) -> list[Row]:
    """Return the rows of a view, the newest last; with ``where`` those for which a condition in SQL holds.

    ``url`` is the daemon's HTTP address: ``view("http://127.0.0.1:9400", "prices", where="price > 100")``. A timestamp
    is a string, as in ndjson.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url must begin with http:// or https://, not {url!r}")
    asked = {"limit": limit} | ({"where": where} if where else {})
    path = f"{url.rstrip('/')}/api/v1/views/{quote(name, safe='')}?{urlencode(asked)}"
    login = make_auth(auth)
    request = Request(path, headers={"Authorization": login} if login else {})  # noqa: S310 - the scheme is checked
    try:
        with urlopen(request, timeout=timeout_s, context=tls) as response:  # noqa: S310
            answer = json.loads(response.read())
        rows: list[Row] = answer["rows"]
    except HTTPError as error:
        raise RefusedError(_reason(error)) from error
    except (URLError, TimeoutError) as error:
        raise UnreachableError(f"{url}: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolError(f"{url} answered with something else: is that an aurorad?") from error
    return rows


def _reason(error: HTTPError) -> str:
    try:
        answer = json.loads(error.read())
        return f"{answer['error']} ({answer['hint']})" if answer.get("hint") else str(answer["error"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
