"""Discovery by DNS: names in --vllm.url, and what becomes of the answers of a name
server.
"""

import logging
import socket

import pytest

from support.exporter import running_exporter
from support.faulty_server import FaultyServer, answer, capture
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.config.values import parse_servers
from vllm_specdec_exporter.settings.configuration import load
from vllm_specdec_exporter.upstream.discovery import (
    KEEP_SECONDS,
    MAX_SERVERS,
    Discovery,
)

NAME = "vllm.llm.svc"
V4 = socket.AF_INET
V6 = socket.AF_INET6
FAILS = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


class Zone:
    """A name server, and a name whose servers are discovered at the time that a test
    sets.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.answers: dict[int, list[str] | Exception] = {}
        self.target = parse_servers(f"dns+http://{NAME}:8000")
        self.discovery = Discovery(lambda: self.now)
        self.discovery.use([self.target])
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(
        self, name: str, port: int, family: int, **_: object
    ) -> list[tuple[object, ...]]:
        assert name == NAME
        addresses = self.answers.get(family, [])
        if isinstance(addresses, Exception):
            raise addresses
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (family, socket.SOCK_STREAM, 6, "", (address, port))
            for address in addresses
        ]

    async def found(self) -> tuple[list[str], bool]:
        """Resolve the name; return its servers, and whether that has worked."""
        await self.discovery.resolve()
        (result,) = self.discovery.results()
        servers = [server.name for server in self.discovery.servers([self.target])]
        assert result.targets == len(servers)
        assert result.up == (not result.failure)
        return servers, result.up


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Zone:
    return Zone(monkeypatch)


@pytest.mark.parametrize(
    ("text", "discovery", "url"),
    [
        ("http://vllm:8000", False, "http://vllm:8000/metrics"),
        ("dns+http://vllm.llm.svc:8000", True, "http://vllm.llm.svc:8000/metrics"),
        ("dns+https://vllm.llm.svc/m", True, "https://vllm.llm.svc/m"),
    ],
)
def test_names_differ_from_addresses(text: str, discovery: bool, url: str) -> None:
    """Prometheus' and Thanos' spelling; the rest is as without."""
    target = parse_servers(text)
    assert target.discovery == discovery
    assert target.url == url
    assert target.name.startswith("dns+") is discovery


@pytest.mark.parametrize(
    "text",
    [
        "dns+unix:/tmp/x",
        "dnssrv+http://vllm",
        "srv+http://vllm",
    ],
)
def test_what_cannot_be_a_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"name|address|allowed"):
        parse_servers(text)


async def test_servers_come_and_go(
    zone: Zone, caplog: pytest.LogCaptureFixture
) -> None:
    """Each address is a server, once, in order; without an answer all stay for five
    minutes.
    """
    caplog.set_level(logging.INFO)
    for addresses in (["10.0.0.1"], ["10.0.0.3", "10.0.0.1", "10.0.0.1"], ["10.0.0.2"]):
        zone.answers[V4] = addresses
        urls = [f"http://{address}:8000" for address in sorted(set(addresses))]
        # twice: what stays the same is not logged again
        results = [await zone.found(), await zone.found()]
        assert results == [(urls, True)] * 2, addresses
    assert [record.getMessage() for record in caplog.records] == ["discovered"] * 3
    zone.answers.clear()
    for seconds, kept in (
        (KEEP_SECONDS - 1, ["http://10.0.0.2:8000"]),
        (KEEP_SECONDS + 1, []),
    ):
        zone.now = seconds
        assert await zone.found() == (kept, False), seconds
    zone.answers[V4] = FAILS
    assert await zone.found() == ([], False)
    zone.answers[V4] = ["10.0.0.4"]
    assert await zone.found() == (["http://10.0.0.4:8000"], True)


async def test_addresses_without_end(
    zone: Zone, caplog: pytest.LogCaptureFixture
) -> None:
    """The first thousand are polled, and the rest is reported once."""
    zone.answers[V4] = [f"10.1.{n // 250}.{n % 250}" for n in range(4000)]
    for _ in range(2):
        servers, up = await zone.found()
        assert len(servers) == MAX_SERVERS
        assert not up
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    (result,) = zone.discovery.results()
    assert result.failure.startswith("4000 addresses, of which 1000 are polled")


def test_servers_without_end() -> None:
    """More addresses than an exporter polls are refused in the configuration."""
    urls = [f"http://10.1.{n // 250}.{n % 250}" for n in range(MAX_SERVERS + 1)]
    with pytest.raises(ConfigError, match="1001 servers, of at most 1000"):
        load({"vllm.url": urls}, {})


async def test_one_family_that_fails_does_not_end_the_servers_of_the_other(
    zone: Zone,
) -> None:
    """Known servers by IPv4 stay, for a bounded time; where none are known, the other
    family serves.
    """
    v4 = ["10.0.0.1", "10.0.0.2"]
    v6 = ["fd00::1", "fd00::2"]
    by_ipv4 = [f"http://{address}:8000" for address in v4]
    by_ipv6 = [f"http://[{address}]:8000" for address in v6]
    # In order: each row begins with what the rows before it left known.
    for answers, seconds, expected in (
        ({V4: v4, V6: FAILS}, 0.0, (by_ipv4, True)),
        ({V4: FAILS, V6: v6}, 0.0, (by_ipv4, False)),
        ({V4: FAILS, V6: v6}, KEEP_SECONDS + 1, (by_ipv6, True)),
        ({V4: v4, V6: v6}, 0.0, (by_ipv4, True)),
        # No records is an answer; of IPv4 alone it is not one of the name.
        ({V6: v6}, 0.0, (by_ipv6, True)),
        ({V6: FAILS}, 0.0, (by_ipv6, False)),
    ):
        zone.answers = dict(answers)
        zone.now += seconds
        assert await zone.found() == expected, answers


@pytest.mark.full
def test_a_name_of_this_machine() -> None:
    """Its address is polled, with the label also as the only one."""
    with (
        FaultyServer(answer(capture())) as server,
        running_exporter(
            "--vllm.url", f"dns+http://localhost:{server.port}"
        ) as exporter,
    ):
        exporter.wait_until_up()
        metrics = exporter.metrics()
        assert metrics.value("up", target=f"http://127.0.0.1:{server.port}") == 1
        name = f"dns+http://localhost:{server.port}"
        assert metrics.value("discovery_up", dns_name=name) == 1
