"""What a server says of itself beside its metrics: its version, and SGLang's
``/server_info``.
"""

from __future__ import annotations

import logging

from ..engines import (
    ENGINE_OF,
    MAX_SERVER_INFO,
    ServerInfo,
    add_server_info,
    read_server_info,
)
from ..engines.reading import Reading
from ..runtime import logs
from ..runtime.daemon_threads import in_daemon_thread
from ..upstream.client import PollError, Upstream

_TRIES = 3  # requests without an answer before the server is assumed to have none


class ServerFacts:
    """The facts of one server, requested until it answers, and kept.

    `name` is for the log. `version` is empty if it is not known.
    """

    def __init__(self, name: str, upstream: Upstream) -> None:
        self._name = name
        self._upstream = upstream
        self.forget()

    def forget(self) -> None:
        """Request them anew: the server may be another process."""
        self.version = ""
        self._info: ServerInfo | None = None
        self._tries_left = _TRIES

    def adopt(self, predecessor: ServerFacts, *, with_info: bool) -> None:
        """Take over the facts of the same server; those of ``/server_info`` if they are
        still wanted.
        """
        self.version = predecessor.version
        self._info = predecessor._info if with_info else None

    async def add_to(
        self, reading: Reading, seconds: float, *, with_info: bool
    ) -> Reading:
        """Return the reading with what ``/server_info`` says, if wanted; what is not
        known yet is requested, within `seconds`.
        """
        engine = ENGINE_OF[reading.dialect]
        if engine.has_version and not self.version and self._tries_left:
            self._tries_left -= 1
            self.version = await self._upstream.version(seconds)
        if not with_info or not engine.has_server_info:
            return reading
        if self._info is None and self._tries_left:
            self._tries_left -= 1
            await self._request_info(seconds)
        if self._info is None:
            return reading
        return add_server_info(reading, self._info)

    async def _request_info(self, seconds: float) -> None:
        reason = "malformed"
        try:
            body = await self._upstream.document(
                "server_info", seconds, MAX_SERVER_INFO
            )
            self._info = await in_daemon_thread(read_server_info, body)
        except PollError as error:
            reason = error.reason  # not the message, which may quote the server
        if self._info is not None:
            self.version = self._upstream.mask(self._info.version)
            return
        self.version = ""
        if not self._tries_left:
            logs.log(
                logging.WARNING,
                "server_info cannot be read",
                target=self._name,
                reason=reason,
            )
