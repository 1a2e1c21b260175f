"""A Prometheus, or a server with its HTTP API: Thanos, Mimir, VictoriaMetrics. Values
on a grid of times.

Increases are computed by the server. `increase` handles counter resets and extrapolates
to the ends of its range by the same factor for all counters of a scrape, so that ratios
of increases are exact and totals are estimates. VictoriaMetrics does not extrapolate,
which only changes totals.
"""

import math
from array import array
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from ...config.values import Target, format_duration
from ...upstream.client import PollError, Upstream
from ...upstream.connection import UpstreamConfig
from .. import arguments as cli
from .configuration import Replica
from .past import GridValues, TimeGrid

#: Values of a response: with their JSON text some 15 MB, of which there is one at a
#: time.
_MAX_VALUES = 100_000
#: Prometheus and Mimir refuse more than 11,000 points of a series.
_MAX_POINTS = 10_000
#: Points below which a query that is too expensive is not divided.
_MIN_POINTS = 12
#: Characters of a server's error in a message, and warnings of a response, so that the
#: report stays readable.
_MAX_REASON = 300
_MAX_WARNINGS = 8
#: Statuses of a query that is too expensive: 422 also for limits of samples, 503 for
#: time-outs.
_TOO_EXPENSIVE = (422, 500, 502, 503, 504)
_NOT_AUTHORISED = (
    "not authorised: see --vllm.bearer-token-file and --vllm.header ('X-Scope-OrgID: "
    "team' for Mimir), or "
    "write http://user:password@host"
)
_HINTS = {
    **dict.fromkeys((401, 403), _NOT_AUTHORISED),
    **dict.fromkeys(
        _TOO_EXPENSIVE, "a shorter --since, or --match for fewer servers, may help"
    ),
    404: "no Prometheus API there; that of Mimir is under /prometheus",
}
#: In the reason of a server that does not understand a query: "parse error", "cannot
#: parse", "unparsed data".
_NOT_PARSED = "pars"
_MALFORMED = (
    "--match has matchers of PromQL, separated by commas, such as 'namespace=\"chat\"'"
)
_T = TypeVar("_T")


class PrometheusError(Exception):
    """A server that cannot be queried.

    The message is one line with the reason and what to do.
    """


class _TooExpensiveError(PrometheusError):
    """A query that a server ends, which may work for a shorter time."""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Matrix(msgspec.Struct):
    result: list[_Series]


class _Response(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw()
    error: str = ""
    warnings: list[str] | None = None
    partial: bool = msgspec.field(default=False, name="isPartial")  # of VictoriaMetrics


def queries(grid: TimeGrid, series: int) -> list[TimeGrid]:
    """Return the times in parts, each of which a query of so many series can answer."""
    points = _MAX_VALUES // max(1, series)
    return grid.parts(max(_MIN_POINTS, min(_MAX_POINTS, points)))


class Prometheus:
    """Queries a server, and shows how far it is on a terminal."""

    def __init__(self, target: Target, config: UpstreamConfig) -> None:
        """Raise ConfigError for certificate files that cannot be used."""
        self._upstream = Upstream(target, config)
        self._base = target.url.partition("?")[0].removesuffix("/metrics").rstrip("/")
        self._timeout = config.timeout
        self._done = 0  # queries
        self._expected = 0
        # Of a query, fewer once one was too expensive.
        self._max_points = _MAX_POINTS
        # of its responses, each once: of Thanos, that a store is missing
        self.warnings: dict[str, None] = {}

    def expect(self, queries: int) -> None:
        """Set the number of queries to come."""
        self._expected = self._done + queries

    async def close(self) -> None:
        """Close the connection."""
        await self._upstream.close()

    async def series(
        self, selector: str, start: float, end: float
    ) -> list[dict[str, str]]:
        """Return the labels of all series of a selector between two Unix times."""
        query = {"match[]": selector, "start": f"{start:.0f}", "end": f"{end:.0f}"}
        return self._data(list[dict[str, str]], await self._body("series", query))

    async def names(self, start: float, end: float) -> list[str]:
        """Return the names of all metrics between two Unix times."""
        query = {"start": f"{start:.0f}", "end": f"{end:.0f}"}
        return self._data(list[str], await self._body("label/__name__/values", query))

    def _data(self, kind: type[_T], body: bytes) -> _T:
        try:
            response = msgspec.json.decode(body, type=_Response)
            data = msgspec.json.decode(response.data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._defect(self._reason(body) or error) from error
        warnings = list(response.warnings or ())[:_MAX_WARNINGS]
        if response.partial:
            warnings.append("partial response")
        self.warnings |= dict.fromkeys(map(_in_one_line, warnings))
        return data

    def number(self, text: str, infinite: float = math.nan) -> float:
        """Return a number in a response, or `infinite`: no server counts that far."""
        try:
            number = float(text)
        except ValueError as error:
            raise self._defect(error) from error
        if math.isfinite(number):
            return number
        return infinite

    def _defect(self, error: object) -> PrometheusError:
        return PrometheusError(f"{self._base}: not a response of a Prometheus: {error}")

    async def grid(self, expression: str, times: TimeGrid) -> GridValues:
        """Return the values of an expression at these times, by labels.

        ``$step`` in it is their distance.
        """
        query = expression.replace("$step", format_duration(times.step))
        columns: dict[Replica, array[float]] = {}
        waiting = times.parts(self._max_points)
        while waiting:
            part = waiting.pop()
            try:
                matrix = await self._matrix(query, part)
            except _TooExpensiveError:
                if part.number < 2 * _MIN_POINTS:
                    raise
                self._max_points = math.ceil(part.number / 2)
                too_long = [*waiting, part]
                waiting = []
                for each in too_long:
                    waiting += each.parts(self._max_points)
                continue
            for series in matrix.result:
                key = tuple(sorted(series.metric.items()))
                if key not in columns:
                    columns[key] = array("d", (math.nan,)) * times.number
                for time, value in series.values:
                    columns[key][times.index_of(time)] = self.number(value)
        return dict(columns)

    async def _matrix(self, query: str, times: TimeGrid) -> _Matrix:
        last = times.at(times.number - 1)
        parameters = {
            "query": query,
            "start": f"{times.start:.3f}",
            "end": f"{last:.3f}",
            "step": f"{times.step:g}",
        }
        return self._data(_Matrix, await self._body("query_range", parameters))

    async def _body(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the body of a successful response."""
        url = f"{self._base}/api/v1/{path}?{urlencode(query)}"
        try:
            response = await self._upstream.ask(url, self._timeout)
        except PollError as error:
            message = f"{self._base}: {error.reason}: {self._upstream.mask(str(error))}"
            if error.reason in ("timeout", "too_large"):
                hint = (
                    "a longer --timeout, a shorter --since, or --match for fewer "
                    "servers"
                )
                raise _TooExpensiveError(f"{message}: {hint}") from error
            raise PrometheusError(message) from error
        finally:
            self._done += 1
            expected = max(self._done, self._expected)
            cli.show_progress(f"\rreading: query {self._done} of {expected} ", end="")
        if response.status == 200:
            return response.body
        message = f"{self._base} answered {response.status}"
        reason = self._reason(response.body)
        hint = _HINTS.get(response.status, "")
        # VictoriaMetrics has 422 for this as well.
        malformed = response.status in (400, 422) and _NOT_PARSED in reason.lower()
        if malformed:
            hint = _MALFORMED
        for explanation in (reason, hint):
            if explanation:
                message = f"{message}: {explanation}"
        if response.status in _TOO_EXPENSIVE and not malformed:
            raise _TooExpensiveError(message)
        raise PrometheusError(message)

    def _reason(self, body: bytes) -> str:
        """Return the error in a response, or its text; empty for a page, which is of a
        proxy.
        """
        try:
            reason = msgspec.json.decode(body, type=_Response).error
        except (msgspec.DecodeError, UnicodeDecodeError):
            reason = ""
        reason = reason or body.decode("utf-8", "replace")
        if reason.lstrip().startswith("<"):
            return ""
        return self._upstream.mask(_in_one_line(reason))


def _in_one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_REASON]
