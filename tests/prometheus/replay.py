"""A server that plays recorded answers, one for each request, whenever it comes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from support.faulty_server import CLASSIC, Behaviour, FaultyServer, Peer, answer, series

__all__ = ["ReplayServer", "Reply", "series"]


@dataclass(frozen=True)
class Reply:
    """One answer of the server."""

    body: bytes
    status: int = 200
    content_type: str = CLASSIC


class ReplayServer(FaultyServer):
    """Answers with `replies` in this order, and then with the last one; an empty
    version is a 404.
    """

    def __init__(
        self, replies: Sequence[Reply | bytes], *, version: str = "0.32.0"
    ) -> None:
        super().__init__(Behaviour(self._reply))
        self._replies = list(replies)
        self.replies_given = 0  # also the last one again
        if version:
            self.version = answer(
                json.dumps({"version": version}).encode(),
                content_type="application/json",
            )

    @property
    def finished(self) -> bool:
        """Whether the last reply was given at least once."""
        return self.replies_given >= len(self._replies)

    async def _reply(self, peer: Peer) -> None:
        reply = self._replies[min(self.replies_given, len(self._replies) - 1)]
        if isinstance(reply, bytes):
            reply = Reply(reply)
        self.replies_given += 1
        status = f"{reply.status} {HTTPStatus(reply.status).phrase}"
        await answer(reply.body, status, reply.content_type).run(peer)
