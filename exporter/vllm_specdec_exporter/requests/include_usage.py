"""Adds the option ``stream_options.include_usage`` to a request.

vLLM sends the record of a stream only with its usage.
"""

from __future__ import annotations

import re
from itertools import islice

from ..engines.server_info import UNREADABLE
from .openai_api import decode_fields, short_value
from .routes import route_of

_INCLUDE_USAGE = b'{"include_usage":true}'
_STREAM_OPTIONS = b'"stream_options":' + _INCLUDE_USAGE + b","
_NULL_OPTIONS = re.compile(rb'"stream_options"[ \t\r\n]*:[ \t\r\n]*(null)')


def with_include_usage(path: str, body: bytes) -> bytes | None:
    """Return the JSON body of a request to `path` with ``include_usage``; ``None`` if it stays unchanged."""
    if route_of(path) not in ("chat", "completions"):
        return None
    changed = bytearray(body)
    return bytes(changed) if add_include_usage(changed) else None


def add_include_usage(body: bytearray) -> bool:
    """Add ``include_usage`` to a streamed request without stream options; return whether it did."""
    place = _place_of_options(body)
    if place is None:
        return False
    start, end = place
    body[start:end] = _STREAM_OPTIONS if start == end else _INCLUDE_USAGE
    return True


def _place_of_options(body: bytearray) -> tuple[int, int] | None:
    """Return start and end of the bytes to replace."""
    stream, options = _stream_fields(body)
    # Servers refuse stream options with `"stream": 0`, which some read as false.
    if stream != b"true":
        return None
    if not options:
        opening = body.index(b"{") + 1
        return opening, opening
    # Servers read duplicate fields differently, so the value itself has to be replaced.
    places = [found.span(1) for found in islice(_NULL_OPTIONS.finditer(body), 2)]
    if options != b"null" or len(places) != 1:
        return None
    start, end = places[0]
    body[start:end] = (
        b"true"  # of the same length: tests whether it belongs to the request or a nested object
    )
    try:
        return places[0] if _stream_fields(body)[1] == b"true" else None
    finally:
        body[start:end] = b"null"


def _stream_fields(body: bytearray) -> tuple[bytes, bytes]:
    """Return the JSON of `stream` and `stream_options`, empty if absent."""
    try:
        fields = decode_fields(body)
    except UNREADABLE:
        return b"", b""
    return short_value(fields.get("stream", b"")), short_value(fields.get("stream_options", b""))
