"""ASGI middleware that observes the requests of a server, such as a gateway or vLLM.

::

    app.add_middleware(RequestObservation, reporter=Reporter(...))          # FastAPI, Starlette
    vllm serve ... --middleware vllm_specdec_exporter.client.asgi.VLLMRequestObservation

Every message is passed on unchanged before it is parsed. WebSockets and other requests are ignored.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from .reporter import Reporter
from .watch import Labels, RequestWatcher, harmless

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from .watch import RequestWatch

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class RequestObservation:
    """An ASGI middleware that reports requests.

    Args:
        app: the wrapped application.
        reporter: receives the observations.
        labels: how requests are classified, see `.watch.Labels`.

    Raises:
        ValueError: an invalid rule.
    """

    def __init__(self, app: App, reporter: Reporter, **labels: Unpack[Labels]) -> None:
        self._app = app
        self._watcher = RequestWatcher(reporter, labels)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle a request, and observe it."""
        watch = self._begin(scope)
        if watch is None:
            await self._app(scope, receive, send)
            return

        async def observed_receive() -> Message:
            message = await receive()
            _observe_request(watch, message)
            return message

        async def observed_send(message: Message) -> None:
            await send(message)
            _observe_response(watch, message)

        try:
            await self._app(scope, observed_receive, observed_send)
        finally:
            watch.stop()

    @harmless
    def _begin(self, scope: Message) -> RequestWatch | None:
        if scope["type"] != "http":
            return None
        return self._watcher.begin(scope["method"], scope["path"], _headers(scope))


class VLLMRequestObservation(RequestObservation):
    """The same for ``vllm serve --middleware``, configured by the variables in `VARIABLES`, or ValueError."""

    def __init__(self, app: App) -> None:
        super().__init__(app, _reporter_from(os.environ), **_labels_from(os.environ))


def _headers(scope: Message) -> dict[str, str]:
    return {
        bytes(name).decode("latin-1").lower(): bytes(value).decode("latin-1")
        for name, value in scope.get("headers", ())
    }


@harmless
def _observe_request(watch: RequestWatch, message: Message) -> None:
    if message["type"] != "http.request":
        return
    watch.request_data(message.get("body", b""))
    if not message.get("more_body", False):
        watch.request_end()


@harmless
def _observe_response(watch: RequestWatch, message: Message) -> None:
    if message["type"] == "http.response.start":
        watch.response_head(message["status"], _headers(message))
    elif message["type"] == "http.response.body":
        watch.response_data(message.get("body", b""))
        if not message.get("more_body", False):
            watch.response_end()


#: The environment variables of `VLLMRequestObservation`, with their descriptions.
VARIABLES = {
    "SPECDEC_PUSH_URL": "address of the exporter, such as `http://127.0.0.1:9850`; needed",
    "SPECDEC_PUSH_TOKEN_FILE": "file with the bearer token, read for every push; needed",
    "SPECDEC_PUSH_CA_FILE": "CA certificates for the exporter's, PEM; by default those of the system",
    "SPECDEC_PUSH_TYPE_HEADER": "request header with the type; by default `X-Request-Type`, empty for none",
    "SPECDEC_PUSH_TYPES": "rules for requests without that header, one a line, as in `--requests.type`",
    "SPECDEC_PUSH_TENANT_HEADER": "request header with the tenant",
    "SPECDEC_PUSH_TENANTS": "tenants that are sent to the exporter, between commas; all others are `other`",
}


def _reporter_from(environ: Mapping[str, str]) -> Reporter:
    for name in ("SPECDEC_PUSH_URL", "SPECDEC_PUSH_TOKEN_FILE"):
        if not environ.get(name):
            raise ValueError(f"the environment variable {name} is needed: {VARIABLES[name]}")
    tls = None
    if ca_file := environ.get("SPECDEC_PUSH_CA_FILE"):
        try:
            tls = ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            raise ValueError(f"SPECDEC_PUSH_CA_FILE: {ca_file} cannot be loaded: {error}") from error
    url = environ["SPECDEC_PUSH_URL"]
    try:
        return Reporter(url, token_file=environ["SPECDEC_PUSH_TOKEN_FILE"], tls=tls)
    except ValueError as error:
        raise ValueError(f"SPECDEC_PUSH_URL: {error}") from error


def _labels_from(environ: Mapping[str, str]) -> Labels:
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
