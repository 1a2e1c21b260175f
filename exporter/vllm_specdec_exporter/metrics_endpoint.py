"""The endpoint `/metrics`: the latest result in the format that a scraper asks for."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from .collector import ResultCollector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiohttp.typedefs import Handler
    from prometheus_client.core import Metric

    from .result import ExporterResult

#: What an answer in OpenMetrics ends with.
_END = b"# EOF\n"

#: As zlib wants it to be told, and as much work as Prometheus' own library does.
_GZIP = zlib.MAX_WBITS | 16
_LEVEL = 6

#: How much a coding is wanted.
_WEIGHT = re.compile(r"[01](?:\.\d{0,3})?")

#: Seconds of writing after which others have their turn.
_TURN_SECONDS = 0.0005


def make_handler(latest: Callable[[], ExporterResult], *, process_metrics: bool) -> Handler:
    """Return the handler of `/metrics`.

    Args:
        latest: returns the result to publish; it never waits.
        process_metrics: whether to publish the metrics of this process too.
    """

    def registry(*, native: bool) -> CollectorRegistry:
        collectors = CollectorRegistry()
        collectors.register(ResultCollector(latest, native=native))
        if process_metrics:
            ProcessCollector(registry=collectors)
            PlatformCollector(registry=collectors)
        return collectors

    return negotiate(registry(native=False), registry(native=True))


def negotiate(text: CollectorRegistry, native: CollectorRegistry) -> Handler:
    """Return a handler that writes text or protobuf, as the scraper prefers.

    Args:
        text: the metrics as the text formats have them.
        native: the same, with native buckets.
    """

    async def handler(request: web.Request) -> web.StreamResponse:
        accept = ",".join(request.headers.getall("Accept", ()))
        names = request.query.getall("name[]", ())
        # `name[]` picks samples, but a message holds whole histograms.
        if "protobuf" in accept.lower() and not names:
            # Few servers ask for it; the others do not pay for it.
            from . import protobuf_exposition

            if protobuf_exposition.accepts(accept):
                body = protobuf_exposition.encode(native)
                response = web.Response(body=body, headers={"Content-Type": protobuf_exposition.CONTENT_TYPE})
                compress(request, response)
                return response
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no number
            encode, content_type = choose_encoder("")
        wanted = text.restricted_registry(names) if names else text
        packed = _takes_gzip(request)
        headers = {"Content-Type": content_type} | ({"Content-Encoding": "gzip"} if packed else {})
        return web.Response(body=await _in_pieces(wanted, encode, packed=packed), headers=headers)

    return handler


def compress(request: web.Request, response: web.Response) -> None:
    """Send `response` as gzip if who asked for it takes that."""
    if _takes_gzip(request):
        response.enable_compression(web.ContentCoding.gzip)


def _takes_gzip(request: web.Request) -> bool:
    """Tell whether an answer may be gzip (RFC 9110, 12.5.3); one that cannot be read asks for nothing."""
    weights: dict[str, float] = {}
    for part in ",".join(request.headers.getall("Accept-Encoding", ())).lower().split(","):
        coding, _, parameter = part.partition(";")
        weight = parameter.strip().removeprefix("q=") or "1"
        weights[coding.strip()] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return weights.get("gzip", weights.get("*", 0.0)) > 0


async def _in_pieces(registry: Collector, encode: Callable[[Collector], bytes], *, packed: bool) -> bytes:
    """Return what `encode` makes of a registry, as gzip if `packed`; let others have their turn meanwhile.

    A large answer takes long, and the tap's traffic, polls and probes would wait for all of it.
    """
    pack = zlib.compressobj(_LEVEL, wbits=_GZIP) if packed else None
    pieces: list[bytes] = []
    turn = time.monotonic()
    for family in registry.collect():
        piece = encode(_One(family)).removesuffix(_END)
        pieces.append(pack.compress(piece) if pack else piece)
        if time.monotonic() - turn >= _TURN_SECONDS:
            await asyncio.sleep(0)
            turn = time.monotonic()
    end = encode(_One())
    return b"".join([*pieces, pack.compress(end) + pack.flush() if pack else end])


class _One(Collector):
    """One family, or none, as a registry."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
