"""A Prometheus, or a server with its HTTP API: Thanos, Mimir, VictoriaMetrics. Values on a grid of times.

Increases are computed by the server. `increase` handles counter resets and extrapolates to the ends of its
range by the same factor for all counters of a scrape, so that ratios of increases are exact and totals are
estimates. VictoriaMetrics does not extrapolate, which only changes totals.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from ...config.values import Target
from ...serve.upstream import PollError, Upstream
from ...serve.upstream_connection import UpstreamConfig
from .past import Grid, Replica

#: Values of a response: with their JSON text some 15 MB, of which there is one at a time.
_MAX_VALUES = 100_000
#: Prometheus and Mimir refuse more than 11,000 points of a series.
_MAX_POINTS = 10_000
#: Points below which a query that is too expensive is not divided.
_MIN_POINTS = 12
#: Characters of a server's error in a message, so that it stays readable.
_MAX_REASON = 300
#: Statuses of a query that is too expensive: 422 also for limits of samples, 503 for time-outs.
_TOO_EXPENSIVE = (422, 500, 502, 503, 504)


class PrometheusError(Exception):
    """A server that cannot be queried. The message is one line with the reason and what to do."""


class _TooExpensiveError(PrometheusError):
    """A query that a server ends, which may work for a shorter time."""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Matrix(msgspec.Struct):
    result: list[_Series]


class _Range(msgspec.Struct):
    data: _Matrix


class _List(msgspec.Struct):
    data: list[Any]


_RANGE, _LIST = msgspec.json.Decoder(_Range), msgspec.json.Decoder(_List)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Times:
    """A grid of times: `number` of them, `step` seconds apart."""

    start: float
    step: float
    number: int

    @property
    def last(self) -> float:
        """The last time."""
        return self.start + (self.number - 1) * self.step

    def parts(self, series: int) -> list[Times]:
        """Return the grid in parts, each of which a query of so many series can answer."""
        points = max(_MIN_POINTS, min(_MAX_POINTS, _MAX_VALUES // max(1, series)))
        starts = range(0, self.number, points)
        return [Times(self.start + at * self.step, self.step, min(points, self.number - at)) for at in starts]


class Prometheus:
    """Queries a server; `tell` is called after each query."""

    def __init__(self, target: Target, config: UpstreamConfig, tell: Callable[[], None]) -> None:
        """Raise ValueError for certificate files that cannot be used."""
        self._upstream = Upstream(target, config)
        self._base = target.url.partition("?")[0].removesuffix("/metrics").rstrip("/")
        self._timeout = config.timeout
        self._tell = tell

    async def close(self) -> None:
        """Close the connection."""
        await self._upstream.close()

    async def series(self, selector: str, start: float, end: float) -> list[dict[str, str]]:
        """Return the labels of all series of a selector between two Unix times."""
        query = {"match[]": selector, "start": f"{start:.0f}", "end": f"{end:.0f}"}
        return [labels for labels in await self._list("series", query) if isinstance(labels, dict)]

    async def names(self, start: float, end: float) -> list[str]:
        """Return the names of all metrics between two Unix times."""
        query = {"start": f"{start:.0f}", "end": f"{end:.0f}"}
        return list(map(str, await self._list("label/__name__/values", query)))

    async def _list(self, path: str, query: Mapping[str, str]) -> list[Any]:
        return self._decoded(_LIST, await self._body(path, query)).data

    def _decoded(self, decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PrometheusError(f"{self._base}: not a response of a Prometheus: {error}") from error

    async def grid(self, expression: str, times: Times) -> Grid:
        """Return the values of an expression at these times, by the labels of its series."""
        query = {
            "query": expression,
            "start": f"{times.start:.3f}",
            "end": f"{times.last:.3f}",
            "step": f"{times.step:g}",
        }
        try:
            body = await self._body("query_range", query)
        except _TooExpensiveError:
            if times.number < 2 * _MIN_POINTS:
                raise
            return await self._halves(expression, times)
        found = self._decoded(_RANGE, body).data.result
        grid: dict[Replica, array[float]] = {}
        for series in found:
            column = array("d", (math.nan,)) * times.number
            for time, value in series.values:
                place = min(times.number - 1, max(0, round((time - times.start) / times.step)))
                try:
                    column[place] = float(value)
                except ValueError as error:
                    raise PrometheusError(f"{self._base}: not a response of a Prometheus: {error}") from error
            grid[tuple(sorted(series.metric.items()))] = column
        return dict(grid)

    async def _halves(self, expression: str, times: Times) -> Grid:
        first = Times(times.start, times.step, times.number // 2)
        second = Times(first.last + times.step, times.step, times.number - first.number)
        one, other = await self.grid(expression, first), await self.grid(expression, second)
        missing = [array("d", (math.nan,)) * part.number for part in (first, second)]
        return {
            key: array("d", one.get(key, missing[0])) + array("d", other.get(key, missing[1]))
            for key in one.keys() | other.keys()
        }

    async def _body(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the body of a successful response."""
        url = f"{self._base}/api/v1/{path}?{urlencode(query)}"
        try:
            response = await self._upstream.ask(url, self._timeout)
        except PollError as error:
            message = f"{self._base}: {error.reason}: {self._upstream.mask(str(error))}"
            if error.reason in ("timeout", "too_large"):
                hint = "a longer --timeout, a shorter --since, or --match for fewer servers"
                raise _TooExpensiveError(f"{message}: {hint}") from error
            raise PrometheusError(message) from error
        finally:
            self._tell()
        if response.status == 200:
            return response.body
        message = f"{self._base} answered {response.status}"
        if response.status in (401, 403):
            raise PrometheusError(
                f"{message}, not authorised: see --vllm.bearer-token-file and --vllm.header, "
                "or write http://user:password@host"
            )
        if response.status == 404:
            raise PrometheusError(f"{message}: no Prometheus API there; that of Mimir is under /prometheus")
        message = f"{message}: {self._upstream.mask(_reason(response.body))}"
        if response.status in _TOO_EXPENSIVE:
            raise _TooExpensiveError(f"{message}: a shorter --since, or --match for fewer servers, may help")
        raise PrometheusError(message)


def _reason(body: bytes) -> str:
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    words = document.get("error") if isinstance(document, dict) else body.decode("utf-8", "replace")
    return " ".join(str(words).split())[:_MAX_REASON]
