"""Observes the requests of an httpx client, or of one of its transports.

::

    http_client = observe(httpx.Client(), reporter)
    http_client = httpx.Client(transport=ObservingTransport(reporter))

An observed client keeps its proxies, certificates and timeouts. Both work with `httpx` and with its successor
`httpx2`. Chunks and exceptions are passed on unchanged and without delay.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from ..requests.exchange import UsageEventFilter
from ..requests.openai_api import with_include_usage
from .watch import RequestWatcher, harmless

if TYPE_CHECKING:
    from typing import Self, TypeVar, Unpack

    from .reporter import Reporter
    from .watch import Labels, RequestWatch

    #: To type checkers, a transport of either library.
    Transport: Any
    Client = TypeVar("Client")
else:
    Transport = object

#: Name of the request extension with its watch.
_EXTENSION = "vllm_specdec_exporter"

_LIBRARIES = ("httpx2", "httpx")


def observe(
    http_client: Client, reporter: Reporter, *, ask_for_usage: bool = False, **labels: Unpack[Labels]
) -> Client:
    """Observe a client of httpx, and return it.

    Args:
        http_client: an `httpx.Client` or an `httpx.AsyncClient`; it gets two event hooks.
        reporter: receives the observations.
        ask_for_usage: whether to add ``include_usage`` to streamed requests without stream options, because
            vLLM sends the record only with the usage, and to remove the additional event.
        labels: how requests are classified, see `Labels`.

    Raises:
        TypeError: not a client of httpx.
        ValueError: an invalid rule.
    """
    library = _library(http_client)
    if library is None or not isinstance(http_client, (library.Client, library.AsyncClient)):
        raise TypeError(f"a Client or an AsyncClient of httpx is expected, not {type(http_client).__name__}")
    observer = _Observer(reporter, labels, ask_for_usage=ask_for_usage)
    before: Any = observer.request
    after: Any = observer.response
    if isinstance(http_client, library.AsyncClient):

        async def before(request: Any) -> None:
            observer.request(request)

        async def after(response: Any) -> None:
            observer.response(response)

    hooks = http_client.event_hooks
    # The last hook of a request, for its final form, and the first of a response, before others read it.
    http_client.event_hooks = {
        "request": [*hooks["request"], before],
        "response": [after, *hooks["response"]],
    }
    return http_client


class ObservingTransport(Transport):  # type: ignore[misc]
    """A transport of a `Client` that observes the requests of another one.

    Args:
        reporter: receives the observations.
        transport: the other one; by default a plain `HTTPTransport`.
        ask_for_usage: as in `observe`.
        labels: how requests are classified, see `Labels`.
    """

    _default: ClassVar[str] = "HTTPTransport"

    def __init__(
        self,
        reporter: Reporter,
        transport: Any = None,
        *,
        ask_for_usage: bool = False,
        **labels: Unpack[Labels],
    ) -> None:
        self._observer = _Observer(reporter, labels, ask_for_usage=ask_for_usage)
        self._transport = transport
        self._lock = threading.Lock()

    def _prepared(self, request: Any) -> Any:
        """Observe a request, and return the transport that sends it."""
        with self._lock:
            if self._transport is None:  # the first request determines the library
                self._transport = getattr(_library(request), self._default)()
        self._observer.request(request)
        return self._transport

    def handle_request(self, request: Any) -> Any:
        """Send a request, and return the response."""
        response = self._prepared(request).handle_request(request)
        self._observer.response(response, request)
        return response

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request, and return the response."""
        response = await self._prepared(request).handle_async_request(request)
        self._observer.response(response, request)
        return response

    def close(self) -> None:
        """Close the other transport."""
        if self._transport is not None:
            self._transport.close()

    async def aclose(self) -> None:
        """Close the other transport."""
        if self._transport is not None:
            await self._transport.aclose()

    def __enter__(self) -> Self:
        if self._transport is not None:
            self._transport.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._transport is not None:
            self._transport.__exit__(*error)

    async def __aenter__(self) -> Self:
        if self._transport is not None:
            await self._transport.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._transport is not None:
            await self._transport.__aexit__(*error)


class AsyncObservingTransport(ObservingTransport):
    """The same for an `AsyncClient`; by default it wraps a plain `AsyncHTTPTransport`."""

    _default = "AsyncHTTPTransport"


class _Observer:
    """Observes requests of httpx and their responses."""

    def __init__(self, reporter: Reporter, labels: Labels, *, ask_for_usage: bool) -> None:
        self._watcher = RequestWatcher(reporter, labels)
        self._ask_for_usage = ask_for_usage

    @harmless
    def request(self, request: Any) -> None:
        """Observe a request before it is sent."""
        request.extensions = {name: value for name, value in request.extensions.items() if name != _EXTENSION}
        path = request.url.raw_path.decode("ascii", "replace")
        watch = self._watcher.begin(request.method, path, dict(request.headers.items()))
        if watch is None:
            return
        library = _library(request)
        try:
            body = request.content
        except library.RequestNotRead:  # a streamed request body
            return
        usage_filter = None
        if self._ask_for_usage and (changed := with_include_usage(path, body)) is not None:
            request.stream = library.ByteStream(changed)
            request.headers["Content-Length"] = str(len(changed))
            request.headers["Accept-Encoding"] = "identity"
            usage_filter = UsageEventFilter()
        watch.request_data(body)
        watch.request_end()
        request.extensions = {**request.extensions, _EXTENSION: (watch, usage_filter)}

    @harmless
    def response(self, response: Any, request: Any = None) -> None:
        """Observe a response before its body is read."""
        watch, usage_filter = (request or response.request).extensions.get(_EXTENSION, (None, None))
        if watch is None:
            return
        headers = dict(response.headers.items())
        if response.is_closed:  # of a mock transport: already read
            headers.pop("content-encoding", None)
            watch.response_head(response.status_code, headers)
            watch.response_data(response.content)
            watch.response_end()
            return
        watch.response_head(response.status_code, headers)
        streams = headers.get("content-type", "").lower().startswith("text/event-stream")
        if not streams or "content-encoding" in headers:
            usage_filter = None
        library, stream = _library(response), response.stream
        both = library.SyncByteStream, library.AsyncByteStream
        kinds = (kind for kind in both if isinstance(stream, kind))
        response.stream = _body_class(*kinds)(stream, watch, usage_filter)


def _library(thing: object) -> Any:
    """Return the module `httpx` or `httpx2` that an object belongs to, ``None`` if it is neither's."""
    roots = (cls.__module__.partition(".")[0] for cls in type(thing).__mro__)
    return next((sys.modules[root] for root in roots if root in _LIBRARIES), None)


class _ObservedBody:
    """The body of a response, observed while it is read, by a `Client` or by an `AsyncClient`."""

    def __init__(self, stream: Any, watch: RequestWatch, usage_filter: UsageEventFilter | None) -> None:
        self._stream = stream
        self._watch = watch
        self._filter = usage_filter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # such as the elapsed time

    def _passed(self, chunk: bytes) -> bytes:
        self._watch.response_data(chunk)
        return chunk if self._filter is None else self._filter.feed(chunk)

    def _rest(self) -> bytes:
        self._watch.response_end()
        return b"" if self._filter is None else self._filter.end()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            if passed := self._passed(chunk):
                yield passed
        if rest := self._rest():
            yield rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        stream = self._stream.__aiter__()
        try:
            async for chunk in stream:
                if passed := self._passed(chunk):
                    yield passed
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        if rest := self._rest():
            yield rest

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._watch.stop()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._watch.stop()


@cache
def _body_class(*kinds: Any) -> Any:
    """Return `_ObservedBody` as one of a library's kinds of streams, which the library checks for."""
    return type("ObservedBody", (_ObservedBody, *kinds), {})
