"""Thousands of requests in which all goes wrong: answers stay whole, counts add up, nothing is left."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from support.closing import stop_accepting
from tap.chaos import MOST, Client, Server, expected, plan
from tap.ends import HOST, eventually, tapping
from vllm_specdec_exporter.requests import exchange
from vllm_specdec_exporter.requests.grouping import Classification
from vllm_specdec_exporter.requests.observation import RecordState

if TYPE_CHECKING:
    from vllm_specdec_exporter.requests.observation import Observation

pytestmark = pytest.mark.full

_CLIENTS = 250
_REQUESTS = 10_000


def _name(observation: Observation) -> str:
    return "malformed record" if observation.state is RecordState.MALFORMED else observation.state.value


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("ask", "requests"), [(False, _REQUESTS), (True, _REQUESTS // 4)], ids=["tap", "asking"]
)
async def test_chaos(ask: bool, requests: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was answered was answered as the server did, and the tap knows of each what it should."""
    for limit in ("MAX_BODY", "MAX_EVENT"):
        monkeypatch.setattr(exchange, limit, MOST)
    random, seen = Random(20), Counter[str]()
    server = Server()
    listening = await asyncio.start_server(server.serve, HOST, 0, backlog=1024)
    url = f"http://{HOST}:{listening.sockets[0].getsockname()[1]}"
    left: list[tuple[int, int, Counter[str]]] = []
    total, outcomes, answered = 0, Counter[str](), 0
    async with tapping(url, ask=ask) as relay:
        relay.tap.use(Classification(), lambda observation: seen.update([_name(observation)]))
        for quarter in range(4):
            steps = plan(random, requests // 4, first=quarter * requests)
            server.steps = {step.number: step for step in steps}
            clients = [Client(relay.port, steps[n::_CLIENTS], ask=ask) for n in range(_CLIENTS)]
            await asyncio.gather(*(client.run() for client in clients))
            await relay.becomes_quiet()
            wrong = [*server.wrong, *(what for client in clients for what in client.wrong)]
            assert wrong == []
            answered += sum(client.answered for client in clients)
            counted, made = expected(steps, ask=ask)
            total, outcomes = total + counted, outcomes + made
            del steps, clients, made
            server.steps = {}
            await asyncio.sleep(0)  # what woke this up has what they all returned
            await eventually(lambda: len(asyncio.all_tasks()) == 2)  # this one, and the one that accepts
            gc.collect()
            kinds = Counter(type(one).__name__ for one in gc.get_objects())
            left.append((kinds.total(), sys.getallocatedblocks(), kinds))
        result = relay.result
        assert answered > requests * 0.8
        assert seen + Counter(relay.unobserved) == outcomes
        assert result.requests_total == total
        assert result.connections_total > _CLIENTS
        assert relay.errors == {}
        assert "internal" not in relay.unobserved
    await stop_accepting(listening.sockets)
    listening.close()

    (_, _, _), (objects, blocks, kinds), _, (objects_after, blocks_after, kinds_after) = left
    assert objects_after - objects < 100, (kinds_after - kinds).most_common(10)
    assert blocks_after - blocks < 1000
