"""Routes: the paths of requests for text, and whether their responses may have a
record of speculation.
"""

from ..engines import ENGINES

#: Path of the endpoint for pushes.
PUSH_PATH = "/api/v1/requests"
#: Routes whose responses may have a record: the end of the path, and the type of
#: request.
ROUTES = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/inference/v1/generate": "generate",
    "/invocations": "invocations",
}
#: The same of whole paths: routes of other engines.
_OWN_ROUTES = {
    path: kind
    for engine in ENGINES
    if engine.record is not None
    for path, kind in engine.record.routes.items()
}
#: Routes for text whose responses have no record, except for the last event of
#: llama.cpp's streams of the first: the ends of the paths.
_WITHOUT_RECORD = ("/v1/responses", "/v1/messages")


def lacks_record(method: str, path: str) -> bool:
    """Return whether a request is for text, and its response has no record of
    speculation.
    """
    return method == "POST" and path.partition("?")[0].endswith(_WITHOUT_RECORD)


def route_of(path: str) -> str:
    """Return the type of request of a path, empty if its responses have no record."""
    path = path.partition("?")[0]
    if path in _OWN_ROUTES:
        return _OWN_ROUTES[path]
    return next((kind for end, kind in ROUTES.items() if path.endswith(end)), "")
