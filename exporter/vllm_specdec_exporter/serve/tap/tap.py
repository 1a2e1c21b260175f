"""The tap: it listens, knows who is connected, and ends without cutting anybody off."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import ssl
import time
from collections import Counter
from typing import TYPE_CHECKING

from aiohappyeyeballs import start_connection

from ...config.addresses import format_address
from ...config.options import ConfigError
from ...publish.events import Event
from ...requests.grouping import Classification
from ...requests.result import TapResult
from .. import logs
from ..sockets import Listener, Resolver
from ..tls import CertificateFiles, UpstreamTLS, load_certificate
from .observer import ObservationContext
from .relay import ERRORS, ClientSide, ServerSide, translate
from .usage_request import UsageRequests

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...requests.observation import Observation
    from ..request_options import TapConfig
    from ..tls import UpstreamConfig


#: Time to connect to the server in, in seconds.
CONNECT_SECONDS = 10.0
#: Time for one of several addresses before the next one is tried too, in seconds.
_NEXT_ADDRESS_SECONDS = 0.25

#: How often the end of connections is looked for while the tap ends, in seconds.
_LOOK_SECONDS = 0.05


class Tap:
    """Relays connections to one server.

    Args:
        config: where to listen, and whom to relay to.
        tls: gives the TLS settings towards the server before each connection; ``None`` for plain HTTP.
        before: called before each connection of a client is begun with.

    Attributes:
        listening: whether clients can connect.
    """

    def __init__(
        self,
        config: TapConfig,
        tls: Callable[[], ssl.SSLContext] | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.config = config
        self._tls = tls
        self._before = before
        self._resolver = Resolver()
        self._watch = ObservationContext(_nobody, Classification(), time.monotonic, time.time)
        self._clients: set[ClientSide] = set()
        self._connections_total = 0
        self._errors: Counter[str] = Counter(dict.fromkeys(ERRORS, 0))
        self._said = ""
        self._cut = False
        self.listening = False

    @property
    def upstream_name(self) -> str:
        """The server's address, without secrets."""
        return self.config.upstream.name

    def use(self, classification: Classification, tell: Callable[[Observation], None]) -> None:
        """Classify requests like this from now on, and tell of them there; until then nobody is told."""
        self._watch.classification = classification
        self._watch.tell = tell

    def serve(self, listener: Listener, context: ssl.SSLContext | None = None) -> None:
        """Relay what comes in at `listener`, over TLS with a `context`.

        Raises:
            OSError: it cannot be.
        """
        listener.serve(self._accept, context)

    def result(self) -> TapResult:
        """Return what is known now."""
        return TapResult(
            address=format_address(*self.config.listen),
            upstream=self.upstream_name,
            listening=self.listening,
            connections=len(self._clients),
            connections_total=self._connections_total,
            requests_total=self._watch.requests,
            upstream_errors_total=dict(self._errors),
            unobserved_total=dict(self._watch.unobserved),
        )

    async def drain(self) -> None:
        """End all connections: idle ones at once, the others with their request, or when time is up."""
        deadline = time.monotonic() + self.config.drain_seconds
        while self._clients:
            late = self._cut or time.monotonic() >= deadline
            for client in tuple(self._clients):
                if client.idle:
                    client.leave()
                elif late:
                    client.end(ConnectionAbortedError())  # in order, a cut answer might look whole
            if late:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        # Closed connections still send what is in their buffers, and tell that they are closed.
        for _ in range(20):
            if not self._clients:
                return
            await asyncio.sleep(_LOOK_SECONDS / 2)
        for client in tuple(self._clients):
            client.end(ConnectionAbortedError())

    def cut(self) -> None:
        """Wait no longer for requests under way."""
        self._cut = True

    def _accept(self) -> ClientSide:
        if self._before is not None:
            self._before()
        return ClientSide(
            self._connect,
            self._watch,
            UsageRequests() if self.config.ask_for_usage else None,
            self._count_error,
            self._enter,
            self._clients.discard,
        )

    def _enter(self, client: ClientSide) -> None:
        self._clients.add(client)
        self._connections_total += 1

    async def _connect(self, server: ServerSide) -> None:
        target = self.config.upstream
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if target.socket:
                    await loop.create_unix_connection(lambda: server, target.socket)
                else:
                    host, port, tls = target.address
                    context = self._tls() if tls and self._tls is not None else None
                    name = (self.config.server_name or host) if context is not None else None
                    connected = await start_connection(
                        await self._resolver.addresses(host, port),
                        happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
                    )
                    await loop.create_connection(
                        lambda: server, sock=connected, ssl=context, server_hostname=name
                    )
        except Exception as error:  # whatever it is, the client is to get an answer
            raise translate(error) from error
        self._said = ""

    def _count_error(self, reason: str) -> None:
        self._errors[reason] += 1
        if reason != self._said:
            self._said = reason
            fields: dict[str, object] = {
                "server": self.upstream_name,
                "reason": reason,
                "error": ERRORS[reason],
            }
            logs.write([Event(logging.WARNING, "tap cannot reach the server", fields)])


def _nobody(_observation: Observation) -> None:
    """Take an observation that nobody waits for."""


#: Time between two attempts to listen, in seconds.
RETRY_SECONDS = 2.0

#: Connections that may wait to be accepted; as vLLM's own server has it.
_BACKLOG = 2048


class TapService:
    """One tap, from its listener to its last connection.

    Args:
        config: what the tap was told.
        upstream: whom to trust, and who to be, towards a server with TLS.

    Raises:
        ConfigError: certificates that cannot be used.
    """

    def __init__(self, config: TapConfig, upstream: UpstreamConfig) -> None:
        self.config = config
        self._trust = _trust(upstream)
        try:
            tls = UpstreamTLS(upstream).context if config.upstream.url.startswith("https:") else None
            certificate = ClientTLS(config.cert_file, config.key_file) if config.cert_file else None
        except ValueError as error:
            raise ConfigError(str(error)) from error
        self._certificate = certificate
        self.tap = Tap(config, tls, certificate.refresh if certificate is not None else None)
        self._listener: Listener | None = None
        self._opening: asyncio.Task[None] | None = None

    def means(self, config: TapConfig, upstream: UpstreamConfig) -> bool:
        """Tell whether it does what these settings say."""
        return self.config == config and self._trust == _trust(upstream)

    async def open(self) -> None:
        """Listen.

        Raises:
            OSError: it cannot be.
        """
        _take_descriptors()
        host, port = self.config.listen
        try:
            listener = await Listener.open(host, port, _BACKLOG)
        except UnicodeError as error:
            raise OSError("not a host name") from error
        context = self._certificate.context if self._certificate is not None else None
        try:
            self.tap.serve(listener, context)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self.tap.listening = True
        fields: dict[str, object] = {
            "address": ",".join(listener.addresses),
            "upstream": self.tap.upstream_name,
        }
        logs.write([Event(logging.INFO, "tap listening", fields)])

    def keep_trying(self) -> None:
        """Listen as soon as it can be."""
        if self._listener is None and self._opening is None:
            self._opening = asyncio.create_task(self._open_at_last(), name="tap listens")

    async def _open_at_last(self) -> None:
        said = ""
        while True:
            try:
                await self.open()
            except OSError as error:
                if str(error) != said:
                    said = str(error)
                    where = format_address(*self.config.listen)
                    fields: dict[str, object] = {"address": where, "error": said}
                    logs.write([Event(logging.ERROR, "tap cannot listen", fields)])
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def stop(self) -> None:
        """Accept no more, and wait for the requests under way."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
        self.tap.listening = False
        await self.tap.drain()

    def cut(self) -> None:
        """Wait no longer for requests under way."""
        self.tap.cut()


def _take_descriptors() -> None:
    """Take as many file descriptors as may be had: one of a client is two with that to the server."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _trust(upstream: UpstreamConfig) -> tuple[object, ...]:
    """Return what of these settings a tap goes by."""
    return upstream.ca_file, upstream.cert_file, upstream.key_file, upstream.insecure_skip_verify


class ClientTLS:
    """The certificate towards clients, as its files have it now.

    Attributes:
        context: the settings; new connections get what was loaded last.

    Raises:
        ValueError: files that hold no certificate with its key.
    """

    def __init__(self, cert_file: str, key_file: str) -> None:
        self._paths = (cert_file, key_file)
        self.context = _towards_clients()
        self.context.set_alpn_protocols(["http/1.1"])
        self._files = CertificateFiles(self._paths, self._load)

    def refresh(self) -> None:
        """Load the files anew if they have changed. Files that cannot be used change nothing."""
        self._files.refresh()

    def _load(self) -> None:
        # A pair that does not fit would leave the old certificate with the new key: try it elsewhere.
        for context in (_towards_clients(), self.context):
            load_certificate(context, self._paths, ("--tap.cert-file", "--tap.key-file"))


def _towards_clients() -> ssl.SSLContext:
    return ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
