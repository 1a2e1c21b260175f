"""Connections to servers: their settings, and TLS with certificates that are reloaded.

cert-manager replaces certificates every few weeks, KServe whenever a pod gets a new
address.
"""

import contextlib
import json
import logging
import ssl
from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from ..config.files import stamp
from ..config.options import ConfigError
from ..config.values import Target
from ..runtime import logs
from ..runtime.daemon_threads import SharedThreads

#: Happy Eyeballs: delay before the next address of the server is tried too, in seconds.
NEXT_ADDRESS_SECONDS = 0.25
_WAIT_SECONDS = 1.0  # longest delay of a connection by files that hang, in seconds


class UpstreamConfig(Struct, frozen=True):
    """How to connect to the servers."""

    targets: tuple[Target, ...] = ()  # the servers to poll
    ca_file: str = ""  # certificates to trust instead of the system's
    cert_file: str = ""  # client certificate, with `key_file`
    key_file: str = ""  # its private key
    #: The name to expect in the server's certificate instead of the address's host.
    server_name: str = ""
    insecure_skip_verify: bool = False  # whether to accept any certificate
    #: File whose content is sent as bearer token; read for every poll.
    bearer_token_file: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # further request headers
    timeout: float = 4.0  # deadline of a whole poll, in seconds

    def request_headers(self, defaults: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return the configured headers, and the `defaults` that are not configured.

        Names may repeat.
        """
        # One spelling of each name: otherwise aiohttp keeps only the last of them.
        spelling: dict[str, str] = {}
        configured = [
            (spelling.setdefault(name.lower(), name), value)
            for name, value in self.headers
        ]
        kept = [
            (name, value)
            for name, value in defaults.items()
            if name.lower() not in spelling
        ]
        return kept + configured


class UpstreamTLS:
    """The TLS context for https servers, which follows changes of its files; raises
    ConfigError if they cannot be used now.

    New files make a new context: `load_cert_chain` on the one in use drops its key if
    the files do not match yet, and a CA cannot be removed from it. If they cannot be
    used, the loaded ones stay. Loading is tried again each time, because the cause may
    be temporary; each version of the files is logged once.
    """

    def __init__(self, config: UpstreamConfig) -> None:
        # an empty path is ignored
        self._paths = (config.ca_file, config.cert_file, config.key_file)
        self._make = partial(tls_context, config)
        self._rejected: tuple[tuple[int, ...], ...] | None = None
        self._threads = SharedThreads()
        self._loaded = self._stamps()
        self._context = self._make()

    async def context(self) -> ssl.SSLContext:
        """Return the context for a new connection.

        Files that hang delay one caller, by `_WAIT_SECONDS`; the others go on with what
        is loaded.
        """
        if not self._threads.are_busy:
            with contextlib.suppress(TimeoutError):
                await self._threads.read(self._refresh, seconds=_WAIT_SECONDS)
        return self._context

    def _refresh(self) -> None:
        stamps = self._stamps()
        if stamps == self._loaded:
            self._rejected = None
            return
        try:
            self._context = self._make()
        except ConfigError as error:
            if stamps != self._rejected:
                self._rejected = stamps
                logs.log(logging.WARNING, "certificates not reloaded", error=str(error))
        else:
            self._loaded = stamps
            self._rejected = None

    def _stamps(self) -> tuple[tuple[int, ...], ...]:
        return tuple(stamp(path) for path in self._paths)


def tls_context(config: UpstreamConfig) -> ssl.SSLContext:
    """Return the TLS context for https servers; ConfigError for unusable files."""
    try:
        context = ssl.create_default_context(cafile=config.ca_file or None)
    except (ssl.SSLError, OSError) as error:
        where = f"--vllm.ca-file {json.dumps(config.ca_file)}"
        raise ConfigError(f"{where}: no certificates in it ({error})") from error
    if config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.cert_file:
        _load_certificate(context, config)
    return context


def _load_certificate(context: ssl.SSLContext, config: UpstreamConfig) -> None:
    try:
        # Without a password, OpenSSL prompts for that of an encrypted key on the
        # terminal.
        context.load_cert_chain(config.cert_file, config.key_file, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        certificate, key = map(json.dumps, (config.cert_file, config.key_file))
        raise ConfigError(
            f"--vllm.cert-file {certificate}: no certificate that fits "
            f"--vllm.key-file {key} ({error})"
        ) from error


def tls_cause(error: BaseException) -> str:
    """Return why a TLS handshake failed, in words that name what to change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    cause = getattr(error, "reason", "") or str(error)
    # What OpenSSL makes of an HTTP response.
    if cause in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"):
        return (
            "the server does not speak TLS at this port: give http:// in place of "
            "https://"
        )
    return cause
