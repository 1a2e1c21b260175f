"""``POST /api/v1/requests``: takes observations of single requests from whoever has the token."""

from __future__ import annotations

import asyncio
import hmac
import time
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from .per_request.observation import Source
from .per_request.push import PATH, PushError, read_push

if TYPE_CHECKING:
    from .requests import Requests

#: Seconds that a client may take to send its push.
_PATIENCE = 30.0

#: Errors that an answer lists.
_MOST_ERRORS = 10


def add_push(app: web.Application, requests: Requests, token_file: str) -> None:
    """Let `app` take pushes for `requests` from whoever has the token in a file."""

    async def push(request: web.Request) -> web.Response:
        token = await asyncio.to_thread(_read_token, token_file)
        if not token:
            return _answer(503, "the bearer token file of the exporter cannot be read, or is empty")
        if not _authorized(request.headers.get("Authorization", ""), token):
            response = _answer(
                401, "a bearer token is needed: Authorization: Bearer TOKEN, with the right one"
            )
            response.headers["WWW-Authenticate"] = 'Bearer realm="vllm-specdec-exporter"'
            return response
        try:
            async with asyncio.timeout(_PATIENCE):
                body = await request.read()
        except TimeoutError:
            requests.reject(1)
            return _answer(408, "the body did not come in time")
        except web.HTTPRequestEntityTooLarge:
            requests.reject(1)
            return _answer(413, "more than 1 MiB: push fewer requests at a time")
        except (web.RequestPayloadError, ConnectionError):
            requests.reject(1)
            return _answer(400, "the body was cut off, or is not compressed as its headers say")
        try:
            pushed = read_push(body, time.time())
        except PushError as error:
            requests.reject(error.count)
            return _answer(400, str(error))
        for observation in pushed.observations:
            requests.observe(Source.PUSH, observation)
        requests.reject(len(pushed.errors))
        document = {
            "accepted": len(pushed.observations),
            "rejected": len(pushed.errors),
            "errors": _told(pushed.errors),
            "warnings": _told(pushed.warnings),
        }
        return web.json_response(document, status=200 if pushed.observations or not pushed.errors else 400)

    app.router.add_post(PATH, push)


def _told(items: tuple[tuple[int, str], ...]) -> list[str]:
    return [f"requests[{place}]: {why}" for place, why in items[:_MOST_ERRORS]]


def _answer(status: int, error: str) -> web.Response:
    return web.json_response({"error": error}, status=status)


def _authorized(header: str, token: str) -> bool:
    kind, _, given = header.strip().partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(
        given.strip().encode("utf-8", "surrogateescape"), token.encode()
    )


def _read_token(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
