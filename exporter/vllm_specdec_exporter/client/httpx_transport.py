"""httpx: observes what passes through a client, or through one of its transports.

::

    http_client = observe(httpx.Client(), reporter)
    http_client = httpx.Client(transport=ObservingTransport(reporter))

A client that is observed keeps its proxies, certificates and timeouts. Both work with `httpx` and with its
successor `httpx2`, whichever the client is of. What passes is passed on as it came: the same chunks, the same
exceptions, nothing waits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from ..requests.stream_usage import UsageEventFilter, ask
from .watch import RequestWatcher, harmless

if TYPE_CHECKING:
    from types import ModuleType, TracebackType
    from typing import Self, TypeVar, Unpack

    from .reporter import Reporter
    from .watch import Labels, RequestWatch

    #: A transport, to type checkers, of whichever library.
    Transport: Any
    Client = TypeVar("Client")
else:
    Transport = object

#: The extension of a request that says what watches it.
_EXTENSION = "vllm_specdec_exporter"

_LIBRARIES = ("httpx2", "httpx")


def observe(
    http_client: Client, reporter: Reporter, *, ask_for_usage: bool = False, **labels: Unpack[Labels]
) -> Client:
    """Let a client of httpx, of either kind, report what passes through it; return that client.

    Args:
        http_client: an `httpx.Client` or an `httpx.AsyncClient`; it gets two event hooks.
        reporter: what observations go to.
        ask_for_usage: whether to ask streams for their usage where they say nothing of it, which vLLM needs
            to send the record, and to hide the event that comes of it.
        labels: how requests are classified, see `Labels`.

    Raises:
        TypeError: no such client.
        ValueError: no such rule.
    """
    library = _library_of(http_client)
    if library is None or not isinstance(http_client, (library.Client, library.AsyncClient)):
        msg = f"a Client or an AsyncClient of httpx is expected, not {type(http_client).__name__}"
        raise TypeError(msg)
    is_async = isinstance(http_client, library.AsyncClient)
    eyes = _Eyes(reporter, labels, ask_for_usage=ask_for_usage, is_async=is_async)
    hooks = http_client.event_hooks
    before: Any = eyes.request
    after: Any = eyes.answer
    if is_async:

        async def before(request: Any) -> None:
            eyes.request(request)

        async def after(response: Any) -> None:
            eyes.answer(response)

    # The last to see a request as it is sent, and the first to see an answer, before another reads it.
    http_client.event_hooks = {
        "request": [*hooks["request"], before],
        "response": [after, *hooks["response"]],
    }
    return http_client


class ObservingTransport(Transport):  # type: ignore[misc]
    """A transport that reports what passes through another.

    Args:
        reporter: what observations go to.
        transport: the other; by default a plain `HTTPTransport`.
        ask_for_usage: as in `observe`.
        labels: how requests are classified, see `Labels`.
    """

    def __init__(
        self,
        reporter: Reporter,
        transport: Any = None,
        *,
        ask_for_usage: bool = False,
        **labels: Unpack[Labels],
    ) -> None:
        self._eyes = _Eyes(reporter, labels, ask_for_usage=ask_for_usage, is_async=False)
        self._transport = transport
        self._lock = threading.Lock()

    def handle_request(self, request: Any) -> Any:
        """Send a request, and return the answer."""
        with self._lock:
            if self._transport is None:  # which library it is of, the first request tells
                self._transport = _library(request).HTTPTransport()
        self._eyes.request(request)
        response = self._transport.handle_request(request)
        self._eyes.answer(response, request)
        return response

    def close(self) -> None:
        """Close the other transport."""
        if self._transport is not None:
            self._transport.close()

    def __enter__(self) -> Self:
        if self._transport is not None:
            self._transport.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._transport is not None:
            self._transport.__exit__(kind, error, trace)


class AsyncObservingTransport(Transport):  # type: ignore[misc]
    """The same for an `AsyncClient`; the default is a plain `AsyncHTTPTransport`."""

    def __init__(
        self,
        reporter: Reporter,
        transport: Any = None,
        *,
        ask_for_usage: bool = False,
        **labels: Unpack[Labels],
    ) -> None:
        self._eyes = _Eyes(reporter, labels, ask_for_usage=ask_for_usage, is_async=True)
        self._transport = transport

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request, and return the answer."""
        if self._transport is None:
            self._transport = _library(request).AsyncHTTPTransport()
        self._eyes.request(request)
        response = await self._transport.handle_async_request(request)
        self._eyes.answer(response, request)
        return response

    async def aclose(self) -> None:
        """Close the other transport."""
        if self._transport is not None:
            await self._transport.aclose()

    async def __aenter__(self) -> Self:
        if self._transport is not None:
            await self._transport.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._transport is not None:
            await self._transport.__aexit__(kind, error, trace)


class _Eyes:
    """What is looked at of a request, and of its answer."""

    def __init__(self, reporter: Reporter, labels: Labels, *, ask_for_usage: bool, is_async: bool) -> None:
        self._watcher = RequestWatcher(reporter, labels)
        self._asks = ask_for_usage
        self._is_async = is_async

    @harmless
    def request(self, request: Any) -> None:
        """Look at a request that is about to be sent."""
        request.extensions = {name: value for name, value in request.extensions.items() if name != _EXTENSION}
        path = request.url.raw_path.decode("ascii", "replace")
        watch = self._watcher.begin(request.method, path, dict(request.headers.items()))
        if watch is None:
            return
        library = _library(request)
        try:
            body = request.content
        except library.RequestNotRead:  # it is sent as it is made, and read by nobody before
            return
        hider = None
        if self._asks and (asked := ask(path, body)) is not None:
            request.stream = library.ByteStream(asked)
            request.headers["Content-Length"] = str(len(asked))
            request.headers["Accept-Encoding"] = "identity"
            hider = UsageEventFilter()
        watch.request_data(body)
        watch.request_end()
        request.extensions = {**request.extensions, _EXTENSION: (watch, hider)}

    @harmless
    def answer(self, response: Any, request: Any = None) -> None:
        """Look at an answer whose body is still to be read."""
        watch, hider = (request or response.request).extensions.get(_EXTENSION, (None, None))
        if watch is None:
            return
        headers = dict(response.headers.items())
        if response.is_closed:  # it never came over a network, and has been read
            headers.pop("content-encoding", None)
            watch.answer_head(response.status_code, headers)
            watch.answer_data(response.content)
            watch.answer_end()
            return
        watch.answer_head(response.status_code, headers)
        streams = headers.get("content-type", "").lower().startswith("text/event-stream")
        if not streams or "content-encoding" in headers:
            hider = None
        of_sync, of_async = _bodies(_library(response))
        kind = of_async if self._is_async else of_sync
        response.stream = kind(response.stream, watch, hider)


def _library_of(thing: object) -> ModuleType | None:
    """Return the library, `httpx` or `httpx2`, that a thing is of."""
    roots = (cls.__module__.partition(".")[0] for cls in type(thing).__mro__)
    return next((sys.modules[root] for root in roots if root in _LIBRARIES), None)


def _library(thing: object) -> Any:
    return _library_of(thing)


class _Watched:
    """The body of an answer that is looked at while it is read."""

    def __init__(self, stream: Any, watch: RequestWatch, hider: UsageEventFilter | None) -> None:
        self._stream = stream
        self._watch = watch
        self._hider = hider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # such as the time it took

    def _passed(self, chunk: bytes) -> bytes:
        self._watch.answer_data(chunk)
        return chunk if self._hider is None else self._hider.feed(chunk)

    def _rest(self) -> bytes:
        self._watch.answer_end()
        return b"" if self._hider is None else self._hider.rest()


class _WatchedSync(_Watched):
    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            if passed := self._passed(chunk):
                yield passed
        if rest := self._rest():
            yield rest

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._watch.stop()


class _WatchedAsync(_Watched):
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

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._watch.stop()


@cache
def _bodies(library: Any) -> tuple[Any, Any]:
    """Return the kinds of bodies, for a `Client` and an `AsyncClient`: a library insists on its own."""
    of_sync = type("WatchedSync", (_WatchedSync, library.SyncByteStream), {})
    return of_sync, type("WatchedAsync", (_WatchedAsync, library.AsyncByteStream), {})
