"""Child process of `soak`: everybody who asks an exporter, also in ways that are not allowed.

Arguments: the exporter's URL, the configuration file, the token for pushes, seconds. It prints as JSON how
often each was done, and with which status.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

from load_client import ask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: Seconds between two times of each.
_SCRAPE, _PUSH, _LOOK, _RUDE, _RELOAD = 0.5, 0.5, 1.0, 0.3, 5.0
_ACCEPTS = {
    "classic": "text/plain;version=0.0.4",
    "OpenMetrics": "application/openmetrics-text;version=1.0.0",
    "protobuf": "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
}
_LOOKS = (
    "/",
    "/?refresh=5s",
    "/config",
    "/-/ready",
    "/-/healthy",
    "/api/v1/snapshot",
    "/api/v1/snapshot?window=1s",
    "/api/v1/snapshot?metric=nothing",
    "/nowhere",
    "/metrics?name[]=vllm_specdec_up",
)
_RUDE_BYTES = (b"", b"GET", b"GET /metrics HTTP/1.1\r\nHost: x\r\n", b"\x16\x03\x01\x02\x00", b"NO\r\n\r\n")


class Clients:
    """All clients of one exporter.

    Args:
        url: of the exporter.
        config: its configuration file.
        token: for pushes.
    """

    def __init__(self, url: str, config: Path, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._config = config
        self._document = yaml.safe_load(config.read_text("utf-8"))
        self._token = token
        self._random = random.Random(1)
        self._reloads = 0
        self.done: Counter[str] = Counter()

    async def _ask(
        self, what: str, method: str, path: str, headers: dict[str, str], data: bytes = b""
    ) -> None:
        fields = {"Host": "x", "Connection": "close", "Content-Length": str(len(data)), **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port)
            with contextlib.closing(writer):
                request = "\r\n".join(lines).encode() + data
                status = (await asyncio.wait_for(ask(reader, writer, request), 10)).status
        except (OSError, EOFError, TimeoutError):
            status = 0
        self.done[f"{what} {status}"] += 1

    async def scrape(self) -> None:
        """Scrape in one of the formats."""
        kind, accept = self._random.choice(list(_ACCEPTS.items()))
        encoding = self._random.choice(("gzip", "identity"))
        await self._ask(f"scrape {kind}", "GET", "/metrics", {"Accept": accept, "Accept-Encoding": encoding})

    async def look(self) -> None:
        """Look at something else."""
        await self._ask("look", "GET", self._random.choice(_LOOKS), {})

    async def push(self) -> None:
        """Tell of requests of ever new models, types and tenants; now and then in a wrong way."""
        pick = self._random
        requests = [self._request() for _ in range(pick.randrange(1, 15))]
        data = json.dumps({"requests": requests}).encode()
        token = self._token
        match pick.randrange(20):
            case 0:
                token = "another"
            case 1:
                data = data[: len(data) // 2]
            case 2:
                data = b"x" * 2_000_000
        await self._ask("push", "POST", "/api/v1/requests", {"Authorization": f"Bearer {token}"}, data)

    def _request(self) -> dict[str, Any]:
        pick = self._random
        accepted = [pick.randrange(4) for _ in range(pick.randrange(1, 60))]
        return {
            "model": f"model-{pick.randrange(10_000)}",
            "temperature": pick.choice((0.0, 0.7, pick.random() * 2, None)),
            "request_type": pick.choice(("chat", "code", f"type-{pick.randrange(10_000)}")),
            "tenant": f"team-{pick.randrange(10_000)}",
            "completion_tokens": len(accepted) + sum(accepted),
            "time_to_first_token_seconds": pick.random(),
            "time_per_output_token_seconds": pick.random() / 20,
            "speculative_decoding": {
                "num_spec_steps": len(accepted),
                "num_draft_tokens": 3 * len(accepted),
                "num_accepted_draft_tokens": sum(accepted),
                "acceptance_histogram": [accepted.count(n) for n in range(4)],
                "per_step_drafted": [3] * len(accepted),
                "per_step_accepted": accepted,
            },
        }

    async def rude(self) -> None:
        """Say nothing, or half of something, and leave without a word; or never take the answer."""
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection(self._host, self._port, limit=1024)
            writer.write(self._random.choice((*_RUDE_BYTES, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 20)))
            await asyncio.sleep(self._random.choice((0.0, 0.5, 3.0)))
            writer.transport.abort()
            del reader
        self.done["rude"] += 1

    async def reload(self) -> None:
        """Change the settings and have them read: others, none that can be used, and those from before."""
        self._reloads += 1
        document = json.loads(json.dumps(self._document))
        match self._reloads % 4:
            case 1:
                document["window"] = ["2s", "1s", "6s"]
                document["threshold"] = {"healthy_acceptance_ratio": 0.5}
            case 2:
                document["vllm"]["url"] = document["vllm"]["url"][::-2]
            case 3:
                document["poll"]["interval"] = "never"
        self._config.write_text(yaml.safe_dump(document), encoding="utf-8")
        await self._ask("reload", "POST", "/-/reload", {})


async def main(url: str, config: Path, token: str, seconds: float) -> None:
    """Do all of it for some time, and leave the settings as they were."""
    clients = Clients(url, config, token)
    end = time.monotonic() + seconds

    async def repeat(act: Callable[[], Awaitable[None]], every: float) -> None:
        while time.monotonic() < end:
            start = time.monotonic()
            await act()
            await asyncio.sleep(max(0.0, every - (time.monotonic() - start)))

    await asyncio.gather(
        *(repeat(clients.scrape, _SCRAPE) for _ in range(2)),
        repeat(clients.push, _PUSH),
        repeat(clients.look, _LOOK),
        *(repeat(clients.rude, _RUDE) for _ in range(2)),
        repeat(clients.reload, _RELOAD),
    )
    while clients._reloads % 4:
        await clients.reload()
    sys.stdout.write(json.dumps(clients.done))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], float(sys.argv[4])))
