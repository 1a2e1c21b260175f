"""Discovery against a real DNS server. `test_discovery.py` runs these in a network of their own.

There, port 53 is free, and every address of 10.0.0.0/8 is this machine: a server that listens on all of them
is as many pods as the zone has records.
"""

import contextlib
import json
import time
from collections.abc import Iterator

import pytest
from dnslib import AAAA, QTYPE, RCODE, RR, SRV, A, DNSRecord
from dnslib.server import BaseResolver, DNSHandler, DNSLogger, DNSServer

from support.exporter import RunningExporter, running_exporter
from support.faulty_server import FaultyServer, answer, capture
from support.programs import eventually
from vllm_specdec_exporter.config.values import parse_servers
from vllm_specdec_exporter.observe.result import Discovered
from vllm_specdec_exporter.serve.discovery import KEEP_SECONDS, Discovery

NAME = "vllm.llm.svc.cluster.local"
SERVICE = f"_http._tcp.{NAME}"


class Zone(BaseResolver):  # type: ignore[misc]
    """Answers from what it holds; other names do not exist. Queries of the kind `failing` fail, or `any`."""

    #: What is said of names outside the cluster.
    outside = RCODE.NXDOMAIN
    failing = ""
    port = 0

    def __init__(self) -> None:
        self.records: dict[str, list[object]] = {}

    def resolve(self, request: DNSRecord, handler: DNSHandler) -> DNSRecord:
        reply = request.reply()
        name = str(request.q.qname).rstrip(".")
        kind = QTYPE[request.q.qtype]
        fails = self.failing in ("any", kind)
        if fails:
            reply.header.rcode = RCODE.SERVFAIL
        elif name not in self.records:
            reply.header.rcode = RCODE.NXDOMAIN if name.endswith("cluster.local") else self.outside
        for data in self.records.get(name, ()) if not fails else ():
            if type(data).__name__ == kind:
                reply.add_answer(RR(name, request.q.qtype, ttl=0, rdata=data))
        if handler.protocol == "udp" and len(reply.pack()) > 512:
            reply.header.tc = 1  # ask again, over TCP
            reply.rr.clear()
        return reply

    def pods(self, number: int) -> list[str]:
        """Let the name have as many pods, each with an address and an SRV record; return the addresses."""
        addresses = [f"10.1.{n // 250}.{n % 250 + 1}" for n in range(number)]
        hosts = [f"pod-{n}.{NAME}" for n in range(number)]
        self.records |= {host: [A(address)] for host, address in zip(hosts, addresses, strict=True)}
        # The second family of a pod is no second pod.
        self.records[NAME] = [*map(A, addresses), *(AAAA(f"fd00::{n + 1}") for n in range(number))]
        self.records[SERVICE] = [SRV(0, 0, self.port, host) for host in hosts]
        return addresses


@pytest.fixture
def zone() -> Iterator[Zone]:
    """A DNS server at the port of DNS, and a vLLM at all addresses."""
    zone = Zone()
    with contextlib.ExitStack() as stack:
        for tcp in (False, True):
            server = DNSServer(zone, "127.0.0.1", 53, tcp=tcp, logger=DNSLogger("-request,-reply,-truncated"))
            server.start_thread()
            stack.callback(server.server.server_close)
            stack.callback(server.stop)
        zone.port = stack.enter_context(FaultyServer(answer(capture()), host="0.0.0.0")).port
        yield zone


def up(exporter: RunningExporter) -> dict[str, float]:
    """Return `vllm_specdec_up` by target."""
    return {dict(labels)["target"]: value for labels, value in exporter.metrics("up").values("up").items()}


def test_servers_come_and_go_without_a_restart(zone: Zone) -> None:
    """Every address is a target, with the label also if there is one; the series of one that is gone end."""
    with running_exporter("--vllm.url", f"dns+http://{NAME}:{zone.port}") as exporter:
        eventually(lambda: "name not resolved" in exporter.log())
        assert up(exporter) == {}
        assert exporter.metrics().value("discovery_up", name=f"dns+http://{NAME}:{zone.port}") == 0.0
        for number in (1, 3, 2):
            wanted = {f"http://{address}:{zone.port}": 1.0 for address in zone.pods(number)}
            eventually(lambda wanted=wanted: up(exporter) == wanted)
            assert {one["target"] for one in exporter.metrics().labels("drafts_total")} == set(wanted)
        assert exporter.metrics().value("discovery_up") == 1.0
        # The last known servers stay while there is no answer, and it is said where people look.
        zone.failing = "any"
        eventually(lambda: exporter.metrics().value("discovery_up") == 0.0)
        assert up(exporter) == wanted
        assert "is not resolved" in exporter.get("/").text
        (name,) = json.loads(exporter.get("/api/v1/snapshot").text)["discoveries"]
        assert (name["up"], name["targets"]) == (False, 2)
        assert exporter.get("/-/healthy").status == 200


@pytest.mark.parametrize("outside", [RCODE.NXDOMAIN, RCODE.SERVFAIL])
def test_records_of_services_are_servers_by_name(zone: Zone, outside: int) -> None:
    """Found below a search domain too, whatever other names get; `target` is the name, which stays."""
    zone.outside = outside
    zone.pods(2)
    with running_exporter("--vllm.url", "dnssrv+http://_http._tcp.vllm.llm.svc") as exporter:
        wanted = {f"http://pod-{n}.{NAME}:{zone.port}": 1.0 for n in range(2)}
        eventually(lambda: up(exporter) == wanted)


def test_a_hundred_pods(zone: Zone) -> None:
    """All are found and polled within an interval or two."""
    zone.pods(100)
    # Slow enough for a busy machine, which is all of the pods and the DNS server as well.
    pace = ("--poll.interval", "8s", "--poll.timeout", "7s", "--window", "40s")
    with running_exporter("--vllm.url", f"dnssrv+http://{SERVICE}", *pace) as exporter:
        eventually(lambda: sum(up(exporter).values()) == 100, 300)


# --- in this process, where the clock can be turned


class Resolving:
    """A name whose servers are discovered when the test says so, at the time that it sets."""

    def __init__(self, url: str) -> None:
        self.now = 0.0
        self.target = parse_servers(url)
        self.discovery = Discovery(lambda: self.now)
        self.discovery.use([self.target])

    async def found(self) -> tuple[list[str], Discovered]:
        """Resolve the name; return its servers and what is told of it."""
        await self.discovery.resolve()
        (result,) = self.discovery.results()
        return [server.name for server in self.discovery.servers([self.target])], result


@pytest.mark.parametrize("url", [f"dns+http://{NAME}:8000", f"dnssrv+http://{SERVICE}"])
async def test_an_answer_that_no_datagram_holds(zone: Zone, url: str) -> None:
    name = Resolving(url)
    for pods in (200, 150):
        zone.pods(pods)
        assert len((await name.found())[0]) == pods


async def test_without_an_answer_servers_are_kept_for_a_bounded_time(zone: Zone) -> None:
    """A name that is gone does not empty the list at once, but after five minutes."""
    name = Resolving(f"dns+http://{NAME}:8000")
    zone.pods(3)
    assert len((await name.found())[0]) == 3
    for seconds, kept in ((KEEP_SECONDS - 1, 3), (KEEP_SECONDS + 1, 0)):
        name.now = seconds
        zone.records.clear()
        servers, result = await name.found()
        assert (len(servers), result.up, result.targets) == (kept, False, kept)
        assert result.failure
    zone.pods(1)
    assert len((await name.found())[0]) == 1


async def test_one_family_that_fails_does_not_end_the_servers_of_the_other(zone: Zone) -> None:
    """Known servers by IPv4 stay, for a bounded time; where none are known, the other family serves."""
    name = Resolving(f"dns+http://{NAME}:8000")
    by_ipv4 = [f"http://{address}:8000" for address in zone.pods(2)]
    by_ipv6 = [f"http://[fd00::{n}]:8000" for n in (1, 2)]

    async def found() -> tuple[list[str], bool]:
        servers, result = await name.found()
        return servers, result.up

    zone.failing = "AAAA"
    assert await found() == (by_ipv4, True)
    zone.failing = "A"
    assert await found() == (by_ipv4, False)
    name.now = KEEP_SECONDS + 1
    assert await found() == (by_ipv6, True)
    zone.failing = ""
    assert await found() == (by_ipv4, True)
    # No records is an answer; of IPv4 alone it is not one of the name.
    zone.records[NAME] = [AAAA("fd00::1"), AAAA("fd00::2")]
    assert await found() == (by_ipv6, True)
    zone.failing = "AAAA"
    assert await found() == (by_ipv6, False)


async def test_a_name_server_that_is_gone_is_a_failure() -> None:
    """Of both kinds of names; it ends in time."""
    discovery = Discovery(time.monotonic)
    discovery.use([parse_servers(f"dns+http://{NAME}"), parse_servers(f"dnssrv+http://{SERVICE}")])
    await discovery.resolve()
    assert [(one.up, bool(one.failure)) for one in discovery.results()] == [(False, True)] * 2
