"""TLS towards the servers: whom to trust and who to be, as the files have it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .tls import CertificateFiles, show, trusting

if TYPE_CHECKING:
    import ssl

    from .config import UpstreamConfig


class UpstreamTLS:
    """The TLS settings for https servers.

    Raises:
        ValueError: files that hold no usable certificate or key.
    """

    def __init__(self, config: UpstreamConfig) -> None:
        self._config = config
        paths = (config.ca_file, config.cert_file, config.key_file)
        self._files = CertificateFiles(paths, self._load)

    def context(self) -> ssl.SSLContext:
        """Return the settings in force, to be asked for before each connection."""
        self._files.refresh()
        return self._context

    def _load(self) -> None:
        self._context = tls_context(self._config)


def tls_context(config: UpstreamConfig) -> ssl.SSLContext:
    """Return the TLS settings for https servers.

    Raises:
        ValueError: files that hold no usable certificate or key.
    """
    context = trusting(config.ca_file, insecure=config.insecure_skip_verify, flag="--vllm.ca-file")
    if config.cert_file:
        show(context, (config.cert_file, config.key_file), ("--vllm.cert-file", "--vllm.key-file"))
    return context
