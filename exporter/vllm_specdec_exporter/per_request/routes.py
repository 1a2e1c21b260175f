"""Paths: the routes of a server whose responses may have a record, and that of pushes."""

from __future__ import annotations

#: Path of the endpoint for pushes.
PUSH_PATH = "/api/v1/requests"

#: Routes whose responses may have a record: the end of the path, and the type of request.
ROUTES = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/inference/v1/generate": "generate",
    "/invocations": "invocations",
}
#: The same of whole paths: SGLang's and llama.cpp's own.
_OWN_ROUTES = {"/generate": "generate", "/completion": "completions"}


def route_of(path: str) -> str:
    """Return the type of request of a path, empty if its responses have no record."""
    path = path.partition("?")[0]
    if path in _OWN_ROUTES:
        return _OWN_ROUTES[path]
    return next((kind for end, kind in ROUTES.items() if path.endswith(end)), "")
