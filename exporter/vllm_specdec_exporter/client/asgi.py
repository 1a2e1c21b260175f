"""ASGI: observes what passes through a server, such as a gateway in Python or vLLM itself.

::

    app.add_middleware(RequestObservation, reporter=Reporter(...))          # FastAPI, Starlette
    vllm serve ... --middleware vllm_specdec_exporter.client.asgi.VLLMRequestObservation

Every message passes as it came, and before it is looked at. WebSockets and everything else that is not a
request for text is none of its business.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from .watch import RequestWatcher, harmless, labels_from, reporter_from

if TYPE_CHECKING:
    from typing import Unpack

    from .reporter import Reporter
    from .watch import Labels, RequestWatch

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class RequestObservation:
    """An ASGI middleware that reports requests.

    Args:
        app: the application behind it.
        reporter: what observations go to.
        labels: how requests are classified, see `.watch.Labels`.

    Raises:
        ValueError: no such rule.
    """

    def __init__(self, app: App, reporter: Reporter, **labels: Unpack[Labels]) -> None:
        self._app = app
        self._watcher = RequestWatcher(reporter, labels)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on, and look at it."""
        watch = self._begin(scope)
        if watch is None:
            await self._app(scope, receive, send)
            return

        async def receiving() -> Message:
            message = await receive()
            _see_request(watch, message)
            return message

        async def sending(message: Message) -> None:
            await send(message)
            _see_answer(watch, message)

        try:
            await self._app(scope, receiving, sending)
        finally:
            watch.stop()

    @harmless
    def _begin(self, scope: Message) -> RequestWatch | None:
        if scope["type"] != "http":
            return None
        return self._watcher.begin(scope["method"], scope["path"], _headers(scope))


class VLLMRequestObservation(RequestObservation):
    """The same for ``vllm serve --middleware``, set up by environment variables, see `.environment`.

    Raises:
        ValueError: a variable is missing, or means nothing.
    """

    def __init__(self, app: App) -> None:
        super().__init__(app, reporter_from(os.environ), **labels_from(os.environ))


def _headers(thing: Message) -> dict[str, str]:
    return {
        bytes(name).decode("latin-1").lower(): bytes(value).decode("latin-1")
        for name, value in thing.get("headers", ())
    }


@harmless
def _see_request(watch: RequestWatch, message: Message) -> None:
    if message["type"] != "http.request":
        return
    watch.request_data(message.get("body", b""))
    if not message.get("more_body", False):
        watch.request_end()


@harmless
def _see_answer(watch: RequestWatch, message: Message) -> None:
    if message["type"] == "http.response.start":
        watch.answer_head(message["status"], _headers(message))
    elif message["type"] == "http.response.body":
        watch.answer_data(message.get("body", b""))
        if not message.get("more_body", False):
            watch.answer_end()
