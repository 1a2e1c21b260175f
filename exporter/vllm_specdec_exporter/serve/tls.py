"""TLS: whom to trust, and certificates that are replaced while the process runs.

By cert-manager that is every few weeks, by KServe whenever a pod comes with a new address.
"""

from __future__ import annotations

import json
import logging
import ssl
from typing import TYPE_CHECKING

from ..config.files import stamp
from ..publish.events import Event
from . import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .settings import UpstreamConfig


class CertificateFiles:
    """Certificate files, read anew when they have changed.

    Files that cannot be used, or are half written, change nothing. They are tried again each time, for the
    cause may be elsewhere (no descriptor left, a directory that cannot be read yet); the log tells once of
    each version of them.

    Args:
        paths: the files; empty for one that there is not.
        load: reads them and takes them; raises ValueError, which names them, where they cannot be used.

    Raises:
        ValueError: they cannot be used now.
    """

    def __init__(self, paths: Sequence[str], load: Callable[[], None]) -> None:
        self._paths = tuple(paths)
        self._load = load
        self._refused: tuple[tuple[int, ...], ...] | None = None
        self._loaded = self._look()
        load()

    def refresh(self) -> None:
        """Read them anew if they are others than those that were loaded."""
        found = self._look()
        if found == self._loaded:
            self._refused = None
            return
        try:
            self._load()
        except ValueError as error:
            if found != self._refused:
                self._refused = found
                logs.write([Event(logging.WARNING, "certificates not reloaded", {"error": str(error)})])
        else:
            self._loaded, self._refused = found, None

    def _look(self) -> tuple[tuple[int, ...], ...]:
        """Return what tells one version of them from another, through links as Kubernetes has them."""
        return tuple(stamp(path) for path in self._paths)


def show(context: ssl.SSLContext, pair: tuple[str, str], flags: tuple[str, str]) -> None:
    """Let `context` show a certificate.

    Args:
        context: the settings.
        pair: files of the certificate and of its key.
        flags: where they were named, for the message.

    Raises:
        ValueError: they hold no certificate with its key.
    """
    try:
        # An encrypted key would ask for its password on the terminal.
        context.load_cert_chain(*pair, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        certificate, key = (f"{flag} {json.dumps(path)}" for flag, path in zip(flags, pair, strict=True))
        msg = f"{certificate}: no certificate that fits {key} ({error})"
        raise ValueError(msg) from error


def trusting(ca_file: str | None, *, insecure: bool, flag: str) -> ssl.SSLContext:
    """Return settings that trust the system's certificates, or those of a file.

    Args:
        ca_file: certificates to trust instead of the system's; empty for none.
        insecure: whether to accept any certificate.
        flag: where the file was named, for the message.

    Raises:
        ValueError: the file holds no certificates.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (ssl.SSLError, OSError) as error:
        msg = f"{flag} {json.dumps(ca_file)}: no certificates in it ({error})"
        raise ValueError(msg) from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


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
