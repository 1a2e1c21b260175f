"""TLS towards the servers: whom to trust and who to be, as the files have it now.

Certificates are replaced while a pod runs: by cert-manager every few weeks, by KServe whenever a pod comes
with a new address. So the files are looked at before each connection, and read anew when they have changed.
"""

from __future__ import annotations

import json
import logging
import ssl
from typing import TYPE_CHECKING

from . import logs
from .events import Event
from .files import stamp
from .tls import trusting

if TYPE_CHECKING:
    from .config import UpstreamConfig


class UpstreamTLS:
    """The TLS settings for https servers.

    Raises:
        ValueError: files that hold no usable certificate or key.
    """

    def __init__(self, config: UpstreamConfig) -> None:
        self._config = config
        self._seen = self._look()
        self._context = tls_context(config)
        self._refused: tuple[tuple[int, ...], ...] | None = None

    def context(self) -> ssl.SSLContext:
        """Return the settings in force. Files that cannot be used, or are half written, change nothing.

        The log tells once of each version of the files that cannot be used.
        """
        seen = self._look()
        if seen == self._seen:
            self._refused = None
            return self._context
        try:
            self._context = tls_context(self._config)
            self._seen = seen
        except ValueError as error:  # and the next connection tries again
            if seen != self._refused:
                self._refused = seen
                logs.write([Event(logging.WARNING, "certificates not reloaded", {"error": str(error)})])
        return self._context

    def _look(self) -> tuple[tuple[int, ...], ...]:
        """Return what tells one version of the files from another, through links as Kubernetes has them."""
        config = self._config
        return tuple(stamp(path) for path in (config.ca_file, config.cert_file, config.key_file))


def tls_context(config: UpstreamConfig) -> ssl.SSLContext:
    """Return the TLS settings for https servers.

    Raises:
        ValueError: files that hold no usable certificate or key.
    """
    context = trusting(config.ca_file, insecure=config.insecure_skip_verify, flag="--vllm.ca-file")
    if config.cert_file:
        try:
            # An encrypted key would ask for its password on the terminal.
            context.load_cert_chain(config.cert_file, config.key_file, password=lambda: "")
        except (ssl.SSLError, OSError, ValueError) as error:
            msg = (
                f"--vllm.cert-file {json.dumps(config.cert_file)}: no certificate that fits "
                f"--vllm.key-file {json.dumps(config.key_file)} ({error})"
            )
            raise ValueError(msg) from error
    return context
