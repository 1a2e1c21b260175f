"""What servers say of themselves: vLLM's /version, and of SGLang's /server_info method, top-k and version.

The latter holds the whole configuration and the launch command, keys included. Everything else in it is
skipped by the parser, and never kept, logged or shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from .reading import EngineReading, Reading

MAX_SERVER_INFO = 8 * 1024 * 1024  # bytes of a response; a few KiB are usual, long chat templates included

#: Methods as vLLM names them, by SGLang's algorithms. Another algorithm is not shown.
_METHODS = {
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "NEXTN": "mtp",
    "FROZEN_KV_MTP": "mtp",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
    "DFLASH": "dflash",
    "DSPARK": "dspark",
}
_MAX_VERSION = 64  # characters; versions with the commit of a build have some 40
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
    return version if version.isprintable() else ""


class _Picked(msgspec.Struct):
    speculative_algorithm: str | None = None
    speculative_eagle_topk: int | None = None
    version: str | None = None


_DECODER = msgspec.json.Decoder(_Picked)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The method and version, empty if not known, and the branches of a draft, ``None`` if not known."""

    method: str = ""
    topk: int | None = None
    version: str = ""


def read_server_info(body: bytes) -> ServerInfo | None:
    """Return what is picked of a response, ``None`` if it is not SGLang's. Nothing quotes the response."""
    try:
        picked = _DECODER.decode(body)
    except UNREADABLE:
        return None
    topk, version = picked.speculative_eagle_topk, picked.version or ""
    if not version.isascii() or not version.isprintable() or len(version) > _MAX_VERSION:
        version = ""
    method = _METHODS.get((picked.speculative_algorithm or "").upper(), "")
    return ServerInfo(method, topk if topk is not None and topk >= 1 else None, version)


def add_server_info(reading: Reading, info: ServerInfo) -> Reading:
    """Return `reading` with the method and top-k of its server in each engine.

    The tokens of a tree are alternatives to each other, so they are no drafted tokens in a row. Those of a
    block, which one step drafts (DFLASH, DSPARK), are.
    """

    def informed(engine: EngineReading) -> EngineReading:
        if engine.drafting is None:
            return engine
        drafting = replace(engine.drafting, method=info.method, topk=info.topk)
        drafts, k = engine.counters.drafts, drafting.num_speculative_tokens
        if drafting.topk is None or drafts is None or k is None:
            return replace(engine, drafting=drafting)
        counters = replace(engine.counters, draft_tokens=None if drafting.tree else drafts * k)
        return replace(engine, drafting=drafting, counters=counters)

    return replace(reading, engines=tuple(map(informed, reading.engines)))
