"""The tap: its connections, its listener, and a shutdown that lets requests finish."""

import asyncio
import logging
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohappyeyeballs import start_connection

from ...config.listen_address import format_address
from ...listener.connection_limits import MAX_CONNECTIONS
from ...listener.sockets import Listener
from ...per_request.grouping import Classification
from ...per_request.observation import Observation
from ...per_request.summary import TapResult
from ...runtime import logs
from ...settings.request_options import TapConfig
from ...upstream.connection import NEXT_ADDRESS_SECONDS, UpstreamConfig, UpstreamTLS
from ...upstream.discovery import Resolver
from .observer import ObservationContext
from .relay import (
    ERRORS,
    ClientSide,
    ReadingTurns,
    ServerSide,
    UpstreamError,
    connection_error,
)

CONNECT_SECONDS = 10.0  # timeout of a connection to the server, in seconds
#: Limits of connections: of 15 kB each, and of 0.3 MiB with TLS to the server, they fit
#: into the memory limit of the chart, beside the bodies that are observed.
MAX_CLIENTS = 4096
MAX_CLIENTS_TO_TLS = 256
#: Bytes that all connections together read at a time, and the part of one at least:
#: while nobody takes them, they are in memory.
_AT_ONCE = 512 * 1024
_LEAST_AT_ONCE = 1024
#: Descriptors beside connections: files, sockets of polls, the event loop's.
_OTHER_FILES = 64
#: Interval at which a shutdown checks the open connections, in seconds.
_POLL_SECONDS = 0.05
RETRY_SECONDS = 2.0  # time between two attempts to listen, in seconds
_BACKLOG = 2048  # listen backlog, the same as that of vLLM's server


class Tap:
    """A tap of one server, from its listener to its last connection; ConfigError for
    bad certificates.
    """

    def __init__(
        self, config: TapConfig, upstream: UpstreamConfig | None = None
    ) -> None:
        self.config = config
        self._upstream = upstream or UpstreamConfig()
        #: Returns the TLS settings for a new connection to the server; ``None`` for
        #: plain HTTP.
        self._tls: Callable[[], Awaitable[ssl.SSLContext]] | None = None
        if config.upstream.url.startswith("https:"):
            self._tls = UpstreamTLS(self._upstream).context
        self._resolver = Resolver()
        self._context = ObservationContext(
            lambda _observation: None, Classification(), time.monotonic, time.time
        )
        self._turns = ReadingTurns()
        self._clients: set[ClientSide] = set()
        self._connections_total = 0
        self._errors: Counter[str] = Counter(dict.fromkeys(ERRORS, 0))
        self._last_error = ""
        self._listener: Listener | None = None
        self._opening: asyncio.Task[None] | None = None

    def means(self, config: TapConfig, upstream: UpstreamConfig) -> bool:
        """Return whether it runs with these settings."""
        return self.config == config and _trust(self._upstream) == _trust(upstream)

    def use(
        self, classification: Classification, report: Callable[[Observation], None]
    ) -> None:
        """Set how requests are classified and where observations go; before that they
        are dropped.
        """
        self._context.classification = classification
        self._context.report = report

    def result(self) -> TapResult:
        """Return the current counts."""
        return TapResult(
            address=format_address(*self.config.listen),
            upstream=self.config.upstream.name,
            listening=self._listener is not None,
            connections=len(self._clients),
            connections_total=self._connections_total,
            requests_total=self._context.requests,
            upstream_errors_total=dict(self._errors),
            unobserved_total=dict(self._context.unobserved),
        )

    def is_full(self) -> bool:
        """Return whether there are as many connections as there may be.

        The rest of the file descriptors is reserved, for polls and the other listener.
        """
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        reserved = min(MAX_CONNECTIONS + _OTHER_FILES, limit // 2)
        most = MAX_CLIENTS_TO_TLS if self._tls else MAX_CLIENTS
        return len(self._clients) >= min(most, (limit - reserved) // 2)

    async def _drain(self, is_cut: Callable[[], bool]) -> None:
        """Close all connections: idle ones at once, others after their request or after
        `drain_seconds`; now, as soon as `is_cut` says so.
        """
        deadline = time.monotonic() + self.config.drain_seconds
        while self._clients:
            is_late = is_cut() or time.monotonic() >= deadline
            for client in tuple(self._clients):
                if client.idle or client.gone:
                    client.end(None)
                elif is_late:
                    # a reset, or a cut response might look complete
                    client.end(ConnectionAbortedError())
            if is_late:
                break
            await asyncio.sleep(_POLL_SECONDS)
        # Closed connections still flush their buffers.
        for _ in range(20):
            if not self._clients:
                return
            await asyncio.sleep(_POLL_SECONDS / 2)
        for client in tuple(self._clients):
            client.end(ConnectionAbortedError())

    def accept(self, accepted: socket.socket, _peer: str) -> None:
        """Relay a connection that was just accepted."""
        client = ClientSide(
            connect=self._connect,
            context=self._context,
            turns=self._turns,
            count_error=self._count_error,
            closed=self._closed,
        )
        self._clients.add(client)
        self._connections_total += 1
        self._share()
        beginning = asyncio.get_running_loop().connect_accepted_socket(
            lambda: client, accepted
        )
        client.beginning = asyncio.create_task(beginning, name="tap accepts")

    def _closed(self, client: ClientSide) -> None:
        self._clients.discard(client)
        self._share()

    def _share(self) -> None:
        """Share what there is among the connections."""
        share = _AT_ONCE // max(1, len(self._clients))
        self._turns.at_once = max(_LEAST_AT_ONCE, share)
        if self._listener is None:
            return
        if self.is_full():
            self._listener.pause()
        else:
            self._listener.resume()

    async def _connect(self, server: ServerSide) -> None:
        target = self.config.upstream
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if target.socket:
                    await loop.create_unix_connection(lambda: server, target.socket)
                else:
                    await self._connect_tcp(server)
        except (OSError, UnicodeError) as error:
            raise connection_error(error) from error
        self._last_error = ""

    async def _connect_tcp(self, server: ServerSide) -> None:
        host, port, _ = self.config.upstream.address
        context = None
        name = None
        if self._tls is not None:
            context = await self._tls()
            name = self.config.server_name or host
        connected = await start_connection(
            await self._resolver.addresses(host, port),
            happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
        )
        try:
            # With a socket of ours: asyncio would resolve the name in a thread that
            # delays the end of the process.
            await asyncio.get_running_loop().create_connection(
                lambda: server, sock=connected, ssl=context, server_hostname=name
            )
        except ConnectionError as error:
            if context is None:
                raise
            # The address was reached: only the handshake is left.
            cause = f"the server closed the connection: {error}".removesuffix(": ")
            raise UpstreamError("tls", cause) from error

    def _count_error(self, error: UpstreamError) -> None:
        self._errors[error.reason] += 1
        if error.reason == self._last_error:
            return
        self._last_error = error.reason
        fields = {
            "server": self.config.upstream.name,
            "reason": error.reason,
            "error": f"{error}: {error.cause}".removesuffix(": "),
        }
        if error.reason == "internal":
            logs.LOGGER.error(
                "tap failed unexpectedly",
                exc_info=error.__cause__,
                extra={"fields": fields},
            )
        else:
            logs.log(logging.WARNING, "tap cannot reach the server", **fields)

    async def open(self) -> None:
        """Listen, or raise OSError."""
        listener = await Listener.open(*self.config.listen)
        listener.serve(self.accept, _BACKLOG)
        self._listener = listener
        logs.log(
            logging.INFO,
            "tap listening",
            address=",".join(listener.addresses),
            upstream=self.config.upstream.name,
        )

    def keep_trying(self) -> None:
        """Retry in the background until the address can be listened on."""
        if self._listener is None and self._opening is None:
            self._opening = asyncio.create_task(self._retry(), name="tap listens")

    async def _retry(self) -> None:
        last_error = ""
        while True:
            try:
                await self.open()
            except OSError as error:
                if str(error) != last_error:
                    last_error = str(error)
                    logs.log(
                        logging.ERROR,
                        "tap cannot listen",
                        address=format_address(*self.config.listen),
                        error=last_error,
                    )
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def stop(self, is_cut: Callable[[], bool] = lambda: False) -> None:
        """Close the listener, and let requests in progress finish until `is_cut`."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._drain(is_cut)


def _trust(upstream: UpstreamConfig) -> tuple[object, ...]:
    """Return the settings of upstream TLS that a tap uses."""
    return (
        upstream.ca_file,
        upstream.cert_file,
        upstream.key_file,
        upstream.insecure_skip_verify,
    )
