"""The tap as a part of the process: its sockets, its certificates, its beginning and its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import ssl
from typing import TYPE_CHECKING

from .. import logs
from ..events import Event
from ..listen_address import format_address
from ..listener import Listener
from ..options import ConfigError
from ..tls import CertificateFiles, show
from ..upstream_tls import UpstreamTLS
from .tap import Tap

if TYPE_CHECKING:
    from ..config import UpstreamConfig
    from .config import TapConfig

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
            show(context, self._paths, ("--tap.cert-file", "--tap.key-file"))


def _towards_clients() -> ssl.SSLContext:
    return ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
