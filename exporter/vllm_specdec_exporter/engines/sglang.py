"""SGLang: what follows from its counters, and what its /server_info adds to them."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .dialect import Formula
from .documents import UNREADABLE
from .reading import EngineReading, Reading


def _none_yet(values: Mapping[str, Any]) -> float | None:
    """Return 0 for a count that is missing before the first token, else ``None``."""
    if values["generation_tokens"]:
        return None
    return 0.0


def _draft_tokens(values: Mapping[str, Any]) -> float | None:
    # Fewer steps than tokens make a tree or a block, and the gauges do not show which.
    k: float = values["num_speculative_tokens"]
    if values["draft_steps"] != k:
        return None
    drafted: float = values["drafts"] * k
    return drafted


#: What SGLang counts when a request finishes: one token of its prefill, and of each
#: verification the accepted tokens and one more. A retracted request has another
#: prefill.
DERIVED: Mapping[str, Formula] = {
    # These series appear with the first finished request, drafts with the first that
    # was speculated.
    "generation_tokens": lambda v: v.get("generation_tokens", 0.0),
    "requests": lambda v: v.get("requests", _none_yet(v)),
    "drafts": lambda v: v.get("drafts", _none_yet(v)),
    "accepted_tokens": lambda v: (
        v["generation_tokens"] - v["requests"] - v["drafts"] - v.get("retractions", 0.0)
    ),
    "num_speculative_tokens": lambda v: max(0.0, v["verified_tokens"] - 1),
    "draft_tokens": _draft_tokens,
}

#: Bytes of a response; a few KiB are usual, long chat templates included.
MAX_SERVER_INFO = 8 * 1024 * 1024

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


class _Picked(msgspec.Struct):
    speculative_algorithm: str | None = None
    speculative_eagle_topk: int | None = None
    version: str | None = None


_DECODER = msgspec.json.Decoder(_Picked)


class ServerInfo(Struct, frozen=True):
    """The method and version, empty if not known, and the branches of a draft, ``None``
    if not known.
    """

    method: str = ""
    topk: int | None = None
    version: str = ""


def read_server_info(body: bytes) -> ServerInfo | None:
    """Return what is picked of a response, ``None`` if it is not SGLang's.

    Nothing quotes the response, which may hold keys.
    """
    try:
        picked = _DECODER.decode(body)
    except UNREADABLE:
        return None
    topk = picked.speculative_eagle_topk
    if topk is not None and topk < 1:
        topk = None
    version = picked.version or ""
    shown = version.isascii() and version.isprintable()
    if not shown or len(version) > _MAX_VERSION:
        version = ""
    method = _METHODS.get((picked.speculative_algorithm or "").upper(), "")
    return ServerInfo(method, topk, version)


def add_server_info(reading: Reading, info: ServerInfo) -> Reading:
    """Return `reading` with the method and top-k of its server in each engine."""
    engines = tuple(_informed(engine, info) for engine in reading.engines)
    return replace(reading, engines=engines)


def _informed(engine: EngineReading, info: ServerInfo) -> EngineReading:
    if engine.drafting is None:
        return engine
    drafting = replace(engine.drafting, method=info.method, topk=info.topk)
    engine = replace(engine, drafting=drafting)
    drafts = engine.counters.drafts
    k = drafting.num_speculative_tokens
    if drafting.topk is None or drafts is None or k is None:
        return engine
    # The tokens of a tree are alternatives to each other, so they are no drafted tokens
    # in a row. Those of a block, which one step drafts (DFLASH, DSPARK), are.
    draft_tokens = None
    if not drafting.tree:
        draft_tokens = drafts * k
    counters = replace(engine.counters, draft_tokens=draft_tokens)
    return replace(engine, counters=counters)
