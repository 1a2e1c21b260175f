"""A watch: one request and its answer, looked at as they pass, by whoever passes them on.

Whatever goes wrong with the looking ends the looking, never the request.
"""

from __future__ import annotations

import logging
import re
import ssl
import time
import zlib
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypedDict, TypeVar

from ..requests.exchange import MAX_BODY, Exchange
from ..requests.grouping import TYPE_HEADER, Classification, TypeRule, clean_type, parse_rule
from ..requests.openai_api import ROUTES, route_of
from .reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


_LOG = logging.getLogger(__package__)

#: What a stream ends with. A client that reads it reads no further.
_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]\s*$")
_KEPT = 64

P = ParamSpec("P")
T = TypeVar("T")


def harmless(function: Callable[P, T]) -> Callable[P, T | None]:
    """Let nothing that goes wrong in `function` reach whoever passes a request on; ``None`` comes of it."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except Exception:  # noqa: BLE001 - whatever it is
            _LOG.debug("a request is not observed", exc_info=True)
            return None

    return guarded


class Labels(TypedDict, total=False):
    """How requests are classified.

    Attributes:
        request_type: the type of requests for which nothing else says one.
        type_header: request header that names the type; by default `TYPE_HEADER`.
        types: rules for requests without that header, as in ``--requests.type``; the first that fits counts.
        tenant: the tenant of all requests.
        tenant_header: request header that names the tenant.
        tenants: the tenants that are named to the exporter; every other is ``other``.
    """

    request_type: str
    type_header: str
    types: Iterable[str]
    tenant: str
    tenant_header: str
    tenants: Iterable[str]


class RequestWatcher:
    """Begins a watch for each request that may be observed.

    Args:
        reporter: what observations go to.
        labels: how requests are classified.

    Raises:
        ValueError: no rule, or no such label.
    """

    def __init__(self, reporter: Reporter, labels: Labels) -> None:
        if unknown := labels.keys() - Labels.__annotations__.keys():
            msg = f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(Labels.__annotations__)}"
            raise ValueError(msg)
        for name in ("types", "tenants"):
            if isinstance(labels.get(name), str):
                msg = f"{name}: a list is expected"
                raise ValueError(msg)
        rules = tuple(map(parse_rule, labels.get("types", ())))
        if fixed := labels.get("request_type"):
            if clean_type(fixed) != fixed:
                msg = f"request_type: {fixed!r}; up to 64 letters, digits and _.:/- are allowed"
                raise ValueError(msg)
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
        """Return what watches a request, ``None`` where its answer has no record.

        Args:
            method: of the request.
            path: of the request, with or without its query.
            headers: of the request, names in lower case.
        """
        path = _as_served(path)
        if not Exchange.concerns(method, path, headers):
            return None
        return RequestWatch(Exchange(path, headers, self._classification), self.reporter, self._tenant)


def _guarded(
    method: Callable[Concatenate[RequestWatch, P], None],
) -> Callable[Concatenate[RequestWatch, P], None]:
    """Let nothing that goes wrong in `method` reach whoever passes the request on."""

    @wraps(method)
    def guarded(watch: RequestWatch, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if watch.over:
            return
        try:
            method(watch, *args, **kwargs)
        except Exception:  # noqa: BLE001 - whatever it is
            _LOG.debug("a request is not observed", exc_info=True)
            watch.fail()

    return guarded


class RequestWatch:
    """Watches one request.

    Attributes:
        over: whether it has ended.
    """

    def __init__(self, exchange: Exchange, reporter: Reporter, tenant: str) -> None:
        self._exchange = exchange
        self._reporter = reporter
        self._tenant = tenant
        self._inflate: zlib._Decompress | None = None
        self._tail = b""
        self.over = False

    @_guarded
    def request_data(self, data: bytes) -> None:
        """Take bytes of the request's body."""
        self._exchange.request_data(data)

    @_guarded
    def request_end(self) -> None:
        """Take note that the request was sent."""
        self._exchange.request_end(time.monotonic())

    @_guarded
    def answer_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the status and the headers (names in lower case) of the answer."""
        if headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip", "deflate"):
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
            headers = {name: value for name, value in headers.items() if name != "content-encoding"}
        self._exchange.answer_head(status, headers)

    @_guarded
    def answer_data(self, data: bytes) -> None:
        """Take bytes of the answer's body."""
        if self._inflate is not None:
            data = self._inflate.decompress(data, MAX_BODY + 1)
            if self._inflate.unconsumed_tail:
                self._exchange.give_up("too_large")
        self._tail = (self._tail + data[-_KEPT:])[-_KEPT:]
        self._exchange.answer_data(data, time.monotonic())

    @_guarded
    def answer_end(self) -> None:
        """Take note that the whole answer came, and report it."""
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
        """Take note that no more comes: of a stream that had said its last word, or of an answer cut off."""
        if _DONE.search(self._tail):
            self.answer_end()
        self.give_up("aborted")

    def fail(self) -> None:
        """Watch no more, for want of what was not thought of."""
        self.over = True
        self._reporter.note_unobserved("internal")

    def give_up(self, reason: str) -> None:
        """Watch no more, for `reason`."""
        if self.over:
            return
        self.over = True
        self._exchange.give_up(reason)
        self._reporter.note_unobserved(self._exchange.unobserved)


def _as_served(path: str) -> str:
    """Return a path as vLLM has it: a gateway, or Azure's client, may do without the version in it."""
    bare, question, query = path.partition("?")
    if route_of(bare):
        return path
    for route in ROUTES:
        end = route.removeprefix("/v1")
        if bare.endswith(end):
            return f"{bare.removesuffix(end)}{route}{question}{query}"
    return path


#: The variables, and what each means.
VARIABLES = {
    "SPECDEC_PUSH_URL": "address of the exporter, such as `http://127.0.0.1:9850`; needed",
    "SPECDEC_PUSH_TOKEN_FILE": "file with the bearer token, read anew for every push; needed",
    "SPECDEC_PUSH_CA_FILE": "certificates that vouch for the exporter's, PEM; by default those of the system",
    "SPECDEC_PUSH_TYPE_HEADER": "request header with the type; by default `X-Request-Type`, empty for none",
    "SPECDEC_PUSH_TYPES": "rules for requests without that header, one a line, as in `--requests.type`",
    "SPECDEC_PUSH_TENANT_HEADER": "request header that names the tenant",
    "SPECDEC_PUSH_TENANTS": "tenants that are named to the exporter, between commas; every other is `other`",
}


def reporter_from(environ: Mapping[str, str]) -> Reporter:
    """Return the reporter that the environment describes.

    Raises:
        ValueError: a variable is missing, or means nothing; the message names it.
    """
    for name in ("SPECDEC_PUSH_URL", "SPECDEC_PUSH_TOKEN_FILE"):
        if not environ.get(name):
            msg = f"the environment variable {name} is needed: {VARIABLES[name]}"
            raise ValueError(msg)
    tls = None
    if ca_file := environ.get("SPECDEC_PUSH_CA_FILE"):
        try:
            tls = ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            msg = f"SPECDEC_PUSH_CA_FILE: {ca_file} cannot be used: {error}"
            raise ValueError(msg) from error
    url = environ["SPECDEC_PUSH_URL"]
    try:
        return Reporter(url, token_file=environ["SPECDEC_PUSH_TOKEN_FILE"], tls=tls)
    except ValueError as error:
        msg = f"SPECDEC_PUSH_URL: {error}"
        raise ValueError(msg) from error


def labels_from(environ: Mapping[str, str]) -> Labels:
    """Return how the environment says that requests are classified."""
    labels: Labels = {}
    if (type_header := environ.get("SPECDEC_PUSH_TYPE_HEADER")) is not None:
        labels["type_header"] = type_header
    if rules := environ.get("SPECDEC_PUSH_TYPES"):
        labels["types"] = [line.strip() for line in rules.splitlines() if line.strip()]
    if header := environ.get("SPECDEC_PUSH_TENANT_HEADER"):
        labels["tenant_header"] = header
    if tenants := environ.get("SPECDEC_PUSH_TENANTS"):
        labels["tenants"] = [name.strip() for name in tenants.split(",") if name.strip()]
    return labels
