"""JSON documents of servers, of which single values are picked."""

import msgspec

#: What msgspec raises for invalid JSON. It checks UTF-8 late, and not always itself.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Versioned(msgspec.Struct):
    version: str


_VERSIONED = msgspec.json.Decoder(_Versioned)


def read_version(body: bytes) -> str:
    """Return the version in a response of vLLM's /version, empty if there is none."""
    try:
        version = _VERSIONED.decode(body).version
    except UNREADABLE:
        return ""
    if version.isprintable():
        return version
    return ""
