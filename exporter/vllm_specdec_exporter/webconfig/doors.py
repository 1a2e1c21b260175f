"""Doors: every connection comes in by the rules in force, and goes when they are in force no more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from ..admission import HANDSHAKE_SECONDS
from .context import alternative_names

if TYPE_CHECKING:
    from ..admission import Admission
    from ..listener import Listener
    from .source import Loaded


class Doors:
    """Lets connections in, and knows by which web configuration each came in.

    Args:
        loaded: the one in force.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._entered: WeakKeyDictionary[asyncio.Transport, Loaded] = WeakKeyDictionary()
        self._retired: WeakSet[asyncio.Transport] = WeakSet()

    def open(self, loaded: Loaded, listener: Listener, admission: Admission) -> None:
        """Let in whom `loaded` lets in, and nobody else, from now on.

        Connections that came in by other rules end with what they are being answered. Where the rules on
        clients are others, those that are not being answered end now.

        Raises:
            OSError: it cannot be; what was in force stays.
        """
        before, self._loaded = self._loaded, loaded
        try:
            listener.serve(lambda: _Doorman(self, admission, loaded), loaded.context, HANDSHAKE_SECONDS)
        except BaseException:
            self._loaded = before
            raise
        finally:
            self._sift(admission)

    def is_retired(self, transport: asyncio.Transport) -> bool:
        """Tell whether a connection ends with its next answer."""
        return transport in self._retired

    def admits(self, transport: asyncio.Transport, loaded: Loaded) -> bool:
        """Tell whether a client may come in that has shown what `loaded` asks for."""
        if clients(loaded) != clients(self._loaded):
            return False  # it was asked by rules that are in force no more
        tls = loaded.config.tls
        allowed = tls.client_allowed_sans if tls else frozenset()
        if allowed and allowed.isdisjoint(alternative_names(transport.get_extra_info("peercert"))):
            return False
        self._entered[transport] = loaded
        if not same_tls(loaded, self._loaded):
            self._retired.add(transport)
        return True

    def _sift(self, admission: Admission) -> None:
        for connection in admission.server.connections:
            transport = connection.transport
            loaded = self._entered.get(transport) if transport is not None else None
            if transport is None or loaded is None or same_tls(loaded, self._loaded):
                continue
            self._retired.add(transport)
            if clients(loaded) != clients(self._loaded) and not admission.is_answering(transport):
                connection.force_close()


def same_tls(one: Loaded, other: Loaded) -> bool:
    """Tell whether two speak TLS alike, with the same files."""
    return (one.config.tls, one.contents.digests[1:]) == (other.config.tls, other.contents.digests[1:])


def clients(loaded: Loaded) -> tuple[object, ...]:
    """Return what decides on clients by their certificates."""
    tls = loaded.config.tls
    if tls is None:
        return ()
    return tls.client_auth, tls.client_allowed_sans, dict(loaded.contents.digests).get(tls.client_ca_file)


class _Doorman(asyncio.Protocol):
    """Looks at a connection before anything else does, and shows those the door that may not come in."""

    def __init__(self, doors: Doors, admission: Admission, loaded: Loaded) -> None:
        self._doors = doors
        self._admission = admission
        self._loaded = loaded

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if not self._doors.admits(transport, self._loaded):
            transport.abort()
            return
        protocol = self._admission()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
