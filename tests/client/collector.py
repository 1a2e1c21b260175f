"""An exporter whose responses the test gives, and that keeps its pushes as bytes."""

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from support.faulty_server import Behaviour, FaultyServer, Peer, Request, answer, raw
from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.per_request.push_schema import read_push


@dataclass(frozen=True)
class Push:
    """One push as it came."""

    request: Request
    body: bytes

    @property
    def observations(self) -> tuple[Observation, ...]:
        return read_push(self.body, time.time()).observations


#: Answers a push: a status and a JSON; anything else is sent as it is, and `None`
#: closes the connection.
Reply = tuple[int, object] | bytes | None


def accepted(push: Push) -> Reply:
    """Answer as the exporter does."""
    pushed = read_push(push.body, time.time())
    errors = [f"requests[{index}]: {why}" for index, why in pushed.errors]
    document = {
        "accepted": len(pushed.observations),
        "rejected": len(pushed.errors),
        "errors": errors,
    }
    return 200 if pushed.observations else 400, document


class Collector(FaultyServer):
    """The server; keeps the pushes that came, in order."""

    def __init__(
        self,
        reply: Callable[[Push], Reply] = accepted,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(Behaviour(self._take, reads_request=False), tls=tls)
        self.reply = reply
        self.pushes: list[Push] = []

    async def _take(self, peer: Peer) -> None:
        request = await peer.read_request()
        push = Push(request, await peer.read(int(request.headers["content-length"])))
        self.pushes.append(push)
        reply = await asyncio.to_thread(self.reply, push)
        if isinstance(reply, tuple):
            status, document = reply
            content = json.dumps(document).encode()
            behaviour = answer(
                content, f"{status} told", "application/json", Connection="close"
            )
        else:
            behaviour = raw(reply or b"")
        await behaviour.run(peer)

    @property
    def observations(self) -> list[Observation]:
        """What was pushed, as the exporter reads it."""
        return [*chain.from_iterable(push.observations for push in list(self.pushes))]

    @property
    def text(self) -> str:
        """Everything that came."""
        return repr(self.pushes)
