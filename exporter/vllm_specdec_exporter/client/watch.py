"""Observes one request and its response while other code transfers them.

An exception in the observation ends the observation, never the request.
"""

from __future__ import annotations

import logging
import time
import zlib
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypedDict, TypeVar

from ..requests.exchange import MAX_BODY, Exchange
from ..requests.grouping import TYPE_HEADER, Classification, TypeRule, clean_type, parse_rule
from ..requests.routes import ROUTES, route_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .reporter import Reporter

_LOG = logging.getLogger(__package__)

P = ParamSpec("P")
T = TypeVar("T")


def harmless(function: Callable[P, T]) -> Callable[P, T | None]:
    """Wrap `function` to return ``None`` instead of raising."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except Exception:  # noqa: BLE001 - requests must not fail
            _LOG.debug("a request is not observed", exc_info=True)
            return None

    return guarded


class Labels(TypedDict, total=False):
    """How requests are classified.

    Attributes:
        request_type: the type of requests without that header that match no rule.
        type_header: request header with the type; by default `TYPE_HEADER`.
        types: rules for requests without that header, as in ``--requests.type``; the first match counts.
        tenant: the tenant of all requests.
        tenant_header: request header with the tenant.
        tenants: the tenants that are sent to the exporter; every other is sent as ``other``.
    """

    request_type: str
    type_header: str
    types: Iterable[str]
    tenant: str
    tenant_header: str
    tenants: Iterable[str]


class RequestWatcher:
    """Creates a `RequestWatch` for each request that may be observed; ValueError for invalid labels."""

    def __init__(self, reporter: Reporter, labels: Labels) -> None:
        if unknown := labels.keys() - Labels.__annotations__.keys():
            known = ", ".join(Labels.__annotations__)
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}; known: {known}")
        for name in ("types", "tenants"):
            if isinstance(labels.get(name), str):
                raise ValueError(f"{name}: a list is expected")
        rules = tuple(map(parse_rule, labels.get("types", ())))
        if fixed := labels.get("request_type"):
            if clean_type(fixed) != fixed:
                raise ValueError(f"request_type: {fixed!r}; up to 64 letters, digits and _.:/- are allowed")
            rules += (TypeRule(fixed, "path", "*"),)
        self.reporter = reporter
        self._tenant = labels.get("tenant", "")
        self._classification = Classification(
            type_header=labels.get("type_header", TYPE_HEADER).lower(),
            rules=rules,
            tenant_header=labels.get("tenant_header", "").lower(),
            tenants=frozenset(labels.get("tenants", ())),
        )

    def begin(self, method: str, path: str, headers: Mapping[str, str]) -> RequestWatch | None:
        """Return the watch of a request, ``None`` if its response has no record.

        Names of `headers` are in lower case.
        """
        path = _vllm_path(path)
        if not Exchange.is_observable(method, path, headers):
            return None
        return RequestWatch(Exchange(path, headers, self._classification), self.reporter, self._tenant)


def _guarded(
    method: Callable[Concatenate[RequestWatch, P], None],
) -> Callable[Concatenate[RequestWatch, P], None]:
    """Wrap `method` to end the watch instead of raising, and to do nothing after its end."""

    @wraps(method)
    def guarded(watch: RequestWatch, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if watch.over:
            return
        try:
            method(watch, *args, **kwargs)
        except Exception:  # noqa: BLE001 - requests must not fail
            _LOG.debug("a request is not observed", exc_info=True)
            watch.over = True
            watch._reporter.note_unobserved("internal")

    return guarded


class RequestWatch:
    """Observes one request, until it is `over`."""

    def __init__(self, exchange: Exchange, reporter: Reporter, tenant: str) -> None:
        self._exchange = exchange
        self._reporter = reporter
        self._tenant = tenant
        self._inflate: zlib._Decompress | None = None
        self.over = False

    @_guarded
    def request_data(self, data: bytes) -> None:
        """Process bytes of the request's body."""
        self._exchange.request_data(data)

    @_guarded
    def request_end(self) -> None:
        """Process the end of the request."""
        self._exchange.request_end(time.monotonic())

    @_guarded
    def response_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Process the status and the headers (names in lower case) of the response."""
        if headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip", "deflate"):
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
            headers = {name: value for name, value in headers.items() if name != "content-encoding"}
        self._exchange.response_head(status, headers)

    @_guarded
    def response_data(self, data: bytes) -> None:
        """Process bytes of the response's body."""
        if self._inflate is not None:
            data = self._inflate.decompress(data, MAX_BODY + 1)
            if self._inflate.unconsumed_tail:
                self._exchange.give_up("too_large")
        self._exchange.response_data(data, time.monotonic())

    @_guarded
    def response_end(self) -> None:
        """Report the observation after the complete response."""
        self.over = True
        observation = self._exchange.finish(time.time())
        if observation is None:
            self._reporter.note_unobserved(self._exchange.unobserved)
            return
        if self._tenant:
            observation = replace(observation, tenant=self._tenant)
        self._reporter.report(observation)

    @_guarded
    def stop(self) -> None:
        """Process the end of the connection: of a stream after its ``[DONE]``, or of an aborted response."""
        if self._exchange.is_done:
            self.response_end()
        if not self.over:
            self.over = True
            self._exchange.give_up("aborted")
            self._reporter.note_unobserved(self._exchange.unobserved)


def _vllm_path(path: str) -> str:
    """Return the path on vLLM: gateways and Azure's client may omit the version."""
    bare, question, query = path.partition("?")
    if route_of(bare):
        return path
    for route in ROUTES:
        end = route.removeprefix("/v1")
        if bare.endswith(end):
            return f"{bare.removesuffix(end)}{route}{question}{query}"
    return path
