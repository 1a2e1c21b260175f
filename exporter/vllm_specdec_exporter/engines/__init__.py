"""Inference engines: the dialects of their metrics, and their normal form."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from ..exposition.text import MalformedExposition, SampleLine, Selection
from .dialect import Dialect, Unrecognized, identify
from .dialects import DIALECTS
from .normal_form import normalise, read_latencies
from .reading import EngineKey, EngineReading, Reading

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


class _Picked(msgspec.Struct):
    speculative_algorithm: str | None = None
    speculative_eagle_topk: int | None = None
    version: str | None = None


_DECODER = msgspec.json.Decoder(_Picked)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The method and version, empty if not known, and the branches of a draft, ``None``
    if not known.
    """

    method: str = ""
    topk: int | None = None
    version: str = ""


def read_server_info(body: bytes) -> ServerInfo | None:
    """Return what is picked of a response, ``None`` if it is not SGLang's.

    Nothing quotes the response.
    """
    try:
        picked = _DECODER.decode(body)
    except UNREADABLE:
        return None
    topk = picked.speculative_eagle_topk
    version = picked.version or ""
    if (
        not version.isascii()
        or not version.isprintable()
        or len(version) > _MAX_VERSION
    ):
        version = ""
    method = _METHODS.get((picked.speculative_algorithm or "").upper(), "")
    return ServerInfo(method, topk if topk is not None and topk >= 1 else None, version)


def add_server_info(reading: Reading, info: ServerInfo) -> Reading:
    """Return `reading` with the method and top-k of its server in each engine.

    The tokens of a tree are alternatives to each other, so they are no drafted tokens
    in a row. Those of a block, which one step drafts (DFLASH, DSPARK), are.
    """

    def informed(engine: EngineReading) -> EngineReading:
        if engine.drafting is None:
            return engine
        drafting = replace(engine.drafting, method=info.method, topk=info.topk)
        drafts = engine.counters.drafts
        k = drafting.num_speculative_tokens
        if drafting.topk is None or drafts is None or k is None:
            return replace(engine, drafting=drafting)
        counters = replace(
            engine.counters, draft_tokens=None if drafting.tree else drafts * k
        )
        return replace(engine, drafting=drafting, counters=counters)

    return replace(reading, engines=tuple(map(informed, reading.engines)))


__all__ = ["DIALECTS", "Dialect", "ReadingEmptiesError", "Unrecognized", "read"]


class ReadingEmptiesError(Unrecognized):
    """The response is a queue that each request empties, so that no further one may be
    sent.
    """


_NAMES = {name for dialect in DIALECTS for name in dialect.names()}
_SELECTION = Selection(_NAMES)
_TENSORRT = (
    rb"(?m)^(?:e2e_request_latency_seconds_count|request_success_total)\{.*engine_type="
)
#: What responses of no supported server are, by the pattern of a series.
_OTHERS = {
    b"(?m)^vllm_specdec_build_info": (
        "the metrics of an exporter, not of a server: give the server's address"
    ),
    _TENSORRT: (
        "metrics without a prefix, as of an earlier TensorRT-LLM, which counts no "
        "drafts: upgrade it"
    ),
}
#: Histograms quadruple the lines to parse, so they are read only on demand.
_WITH_LATENCIES = Selection(
    _NAMES.union(*(dialect.histogram_fields for dialect in DIALECTS))
)


def read(
    body: bytes, content_type: str = "", *, latencies: bool = False, process: str = ""
) -> Reading:
    """Parse one response of a server in any dialect.

    Args:
        body: the body of the response.
        content_type: its Content-Type; OpenMetrics must end with ``# EOF``, otherwise
            it was truncated.
        latencies: whether to read the latency histograms as well.
        process: what tells this process of the server from others, if the response has
            it.

    Raises MalformedExposition for anything but an exposition, and Unrecognized for one
    without a series of a supported server or with series of several kinds, its subclass
    ReadingEmptiesError for the queue of TensorRT-LLM's /metrics.
    """
    start = body[:256].lstrip().lower()
    if start.startswith((b"<!doctype", b"<html")):
        raise MalformedExposition("an HTML page instead of metrics")
    if "json" in content_type.lower() and start.startswith(b"["):
        raise ReadingEmptiesError(
            "a JSON list instead of metrics, such as TensorRT-LLM's queue of "
            "iterations, which each request "
            "empties; the server is not polled again with this URL: "
            "/prometheus/metrics has the metrics"
        )
    if "openmetrics" in content_type.lower() and not body.rstrip().endswith(b"# EOF"):
        raise MalformedExposition(
            "an OpenMetrics text without # EOF at the end: it was truncated"
        )
    lines = tuple((_WITH_LATENCIES if latencies else _SELECTION).lines(body))
    for mark, words in () if lines else _OTHERS.items():
        if re.search(mark, body):
            raise Unrecognized(words)
    dialect = _only_dialect(lines)
    reading = normalise(dialect, lines, process)
    if latencies:
        return read_latencies(dialect, lines, reading)
    return reading


def _only_dialect(lines: tuple[SampleLine, ...]) -> Dialect:
    """Return the dialect of a response; Unrecognized without one, or if servers of
    several are in it.
    """
    seen = {line.name for line in lines}
    possible = [dialect for dialect in DIALECTS if dialect.may_be(seen)]
    found = [dialect for dialect in possible if dialect.recognises(seen)]
    if not found:
        raise Unrecognized(
            "no series of a known server; is this the /metrics of a supported "
            "server, and does the server "
            "run without --disable-log-stats?"
        )
    one = found[0]
    names = {one.name, *(each.name for each in found if each.prefixes != one.prefixes)}
    # the kinds of the engines, each by itself
    if len(names) == 1 and len(possible) > 1:
        by_engine = _names_by_engine(one, lines).values()
        names.update(
            *([d.name for d in possible if d.recognises(own)][:1] for own in by_engine)
        )
    if len(names) > 1:
        raise Unrecognized(
            f"several servers in one response ({', '.join(sorted(names))}): poll "
            "each of them itself"
        )
    return one


def _names_by_engine(
    dialect: Dialect, lines: Iterable[SampleLine]
) -> dict[EngineKey, set[str]]:
    parts = dialect.parts_in(lines)
    names: defaultdict[EngineKey, set[str]] = defaultdict(set)
    for line in lines:
        names[identify(line.labels, parts)[0]].add(line.name)
    return names
