"""What the exporter says while the server behind it misbehaves, and that it comes back afterwards."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from support.builders import vllm_lines
from support.exporter import Metrics, running_exporter
from support.faulty_server import (
    OPENMETRICS,
    Behaviour,
    FaultyServer,
    answer,
    capture,
    chunked,
    drip,
    flood,
    hang,
    head,
    raw,
    replay,
    sequence,
    status,
)
from support.programs import eventually
from vllm_specdec_exporter.reading import Counters
from vllm_specdec_exporter.result import REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.exporter import RunningExporter

BODY = capture()
WHOLE = head(Content_Type="text/plain", Content_Length=len(BODY)) + BODY
HALF = len(BODY) // 2
MIB = 1024 * 1024

COUNTED = Counters(
    drafts=1000,
    draft_tokens=4000,
    accepted_tokens=1800,
    accepted_tokens_per_position=(800, 500, 300, 200),
    generation_tokens=3000,
)


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def vllm(*, without: str = "\0", replace: tuple[str, str] = ("", ""), more: Sequence[str] = ()) -> bytes:
    """A small vLLM answer, without the lines that hold `without`, and with a text replaced."""
    lines = [*vllm_lines(COUNTED, model_name="m", engine="0"), *more]
    return text(*(line.replace(*replace) if replace[0] else line for line in lines if without not in line))


def value_of(series: str, value: str) -> bytes:
    """A small vLLM answer in which the series has this value."""
    lines = vllm_lines(COUNTED, model_name="m", engine="0")
    return text(*(f"{line.rsplit(' ', 1)[0]} {value}" if series in line else line for line in lines))


REFUSED = Behaviour(replay().run)  # the journey below closes the port for it
DRAFTS = "vllm:spec_decode_num_drafts_total"

#: Every fault, the reason that it must be counted under, and what the server does.
FAULTS: dict[str, tuple[str, Behaviour]] = {
    # No answer.
    "nothing listens": ("refused", REFUSED),
    "resets at once": ("reset", raw(reads_request=False, reset=True)),
    "closes at once": ("reset", raw(reads_request=False)),
    "resets after the request": ("reset", raw(reset=True)),
    "closes after the request": ("reset", raw()),
    "closes within the status line": ("reset", raw(b"HTTP/1.1 2")),
    "closes within the head": ("reset", raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/pl")),
    # Too slow.
    "accepts and is silent": ("timeout", hang(reads_request=False)),
    "reads and is silent": ("timeout", hang()),
    "hangs within the head": ("timeout", hang(b"HTTP/1.1 200 OK\r\n")),
    "hangs before the body": ("timeout", hang(head(Content_Length=len(BODY)))),
    "hangs within the body": ("timeout", hang(WHOLE[:HALF])),
    "hangs before the last byte": ("timeout", hang(WHOLE[:-1])),
    "hangs before the last chunk": (
        "timeout",
        hang(head(Transfer_Encoding="chunked"), b"%x\r\n%s\r\n" % (len(BODY), BODY)),
    ),
    "does not close where only that ends the body": ("timeout", hang(head(version="1.0") + BODY)),
    "drips the head": ("timeout", drip(b"HTTP/1.1 200 OK\r\nX-Padding: ", b"x", 0.05)),
    "drips the body": ("timeout", drip(head(Content_Length=len(BODY)), b"#", 0.05)),
    "drips chunks": ("timeout", drip(head(Transfer_Encoding="chunked"), b"2\r\n#\n\r\n", 0.05)),
    "never gets to the final head": ("timeout", drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05)),
    # Cut off.
    "closes within a body of known length": ("malformed", raw(WHOLE[:HALF])),
    "resets within a body of known length": ("malformed", raw(WHOLE[:HALF], 0.1, reset=True)),
    "lacks the last byte": ("malformed", raw(WHOLE[:-1])),
    "closes within a body of unknown length": ("malformed", raw(head() + BODY[: HALF + 20])),
    "closes within a chunk": ("malformed", raw(head(Transfer_Encoding="chunked"), b"ffff\r\n" + BODY[:99])),
    "lacks the last chunk": ("malformed", chunked(BODY, end=b"")),
    "OpenMetrics without EOF": ("malformed", answer(BODY, content_type=OPENMETRICS)),
    # No HTTP.
    "SSH": ("malformed", raw(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", reads_request=False)),
    "binary garbage for a head": ("malformed", raw(bytes(range(256)) * 8)),
    "TLS alert": ("malformed", raw(b"\x15\x03\x01\x00\x02\x02\x46")),
    "metrics without a head": ("malformed", raw(BODY)),
    "chunk size is no number": ("malformed", raw(head(Transfer_Encoding="chunked") + b"xyz\r\nabc\r\n")),
    # aiohttp's parser drops the payload without telling its reader, so only the deadline ends the wait.
    "chunk size in the middle is no number": (
        "timeout",
        raw(head(Transfer_Encoding="chunked"), b"2\r\n#\n\r\n", 0.1, b"xyz\r\nabc\r\n"),
    ),
    "length is no number": ("malformed", answer(BODY, Content_Length="many")),
    "length is negative": ("malformed", answer(BODY, Content_Length="-5")),
    "two lengths": ("malformed", raw(head(Content_Length=5, content_length=6) + BODY)),
    "endless header line": ("malformed", flood(b"HTTP/1.1 200 OK\r\nX-Padding: ", b"x" * 4096)),
    # No success.
    "204": ("http_status", raw(b"HTTP/1.1 204 No Content\r\n\r\n")),
    "206": ("http_status", status("206 Partial Content")),
    "400": ("http_status", status("400 Bad Request")),
    "401": ("http_status", status("401 Unauthorized", WWW_Authenticate='Basic realm="vllm"')),
    "403": ("http_status", status("403 Forbidden")),
    "404": ("http_status", status("404 Not Found")),
    "429": ("http_status", status("429 Too Many Requests", Retry_After=1)),
    "500": ("http_status", status("500 Internal Server Error")),
    "503": ("http_status", status("503 Service Unavailable")),
    "500 with a body that never ends": ("http_status", drip(head("500 Oh", Content_Length=99), b"x", 0.05)),
    "500 with a long excuse": ("http_status", status("500 " + "sorry " * 1000)),
    "500 whose excuse has control characters": ("http_status", status("500 \x1b[31mred\x1b[0m \x9b31m")),
    "301": ("redirect", status("301 Moved Permanently", Location="/other")),
    "302": ("redirect", status("302 Found", Location="http://127.0.0.1:1/metrics")),
    "307": ("redirect", status("307 Temporary Redirect", Location="/metrics/")),
    "308 without a location": ("redirect", status("308 Permanent Redirect")),
    "304": ("redirect", raw(b"HTTP/1.1 304 Not Modified\r\n\r\n")),
    # No metrics.
    "HTML": ("malformed", answer(b"<!DOCTYPE html>\n<title>Login</title>\n", content_type="text/html")),
    "HTML without a doctype": ("malformed", answer(b"\n <html>\n</html>\n", content_type="text/html")),
    "JSON": ("malformed", answer(b'{"object":"error"}', content_type="application/json")),
    "binary": ("malformed", answer(bytes(reversed(range(256))) * 64)),
    "UTF-16": ("malformed", answer(BODY.decode().encode("utf-16-le"))),
    "empty": ("unrecognized", answer(b"")),
    "blank lines": ("unrecognized", answer(b"\n\n")),
    "metrics of another program": ("unrecognized", answer(b"node_load1 0.5\n")),
    "OpenMetrics with nothing in it": ("unrecognized", answer(b"# EOF\n", content_type=OPENMETRICS)),
    # Wrong encodings.
    "gzip that is plain": ("malformed", answer(BODY, Content_Encoding="gzip")),
    "gzip cut off": ("malformed", answer(gzip.compress(BODY)[:-9], Content_Encoding="gzip")),
    "gzip with a flipped bit": (
        "malformed",
        answer(bytes(b ^ (i == 999) for i, b in enumerate(gzip.compress(BODY))), Content_Encoding="gzip"),
    ),
    "gzip that holds garbage": (
        "malformed",
        answer(gzip.compress(b"\x00\xff" * 99), Content_Encoding="gzip"),
    ),
    "gzip twice": ("malformed", answer(gzip.compress(gzip.compress(BODY)), Content_Encoding="gzip, gzip")),
    "raw deflate": ("malformed", answer(zlib.compress(BODY)[2:-4], Content_Encoding="deflate")),
    "brotli": ("malformed", answer(BODY, Content_Encoding="br")),
    # Impossible values.
    "NaN counter": ("malformed", answer(value_of(DRAFTS, "NaN"))),
    "infinite counter": ("malformed", answer(value_of(DRAFTS, "+Inf"))),
    "negative counter": ("malformed", answer(value_of(DRAFTS, "-1"))),
    "negative infinite counter": ("malformed", answer(value_of("per_pos", "-Inf"))),
    "NaN position": ("malformed", answer(value_of('position="2"', "nan"))),
    "no number": ("malformed", answer(value_of(DRAFTS, "many"))),
    "no value": ("malformed", answer(value_of(DRAFTS, ""))),
    "duplicate series": ("malformed", answer(vllm() + vllm())),
    "a position that is no number": ("malformed", answer(vllm(replace=('position="2"', 'position="b"')))),
    "a negative position": ("malformed", answer(vllm(replace=('position="2"', 'position="-1"')))),
    "a position out of all proportion": ("malformed", answer(vllm(replace=('"2"', '"99999999999"')))),
    "labels that are not UTF-8": ("malformed", answer(vllm().replace(b'"m"', b'"\xff\xfe"'))),
    "labels that do not end": ("malformed", answer(vllm(replace=('"m"', '"m')))),
    "a label twice": ("malformed", answer(vllm(replace=("{", '{engine="1",')))),
}


@dataclass
class Seen:
    """What was seen of one fault."""

    during: Metrics | None = None
    after: Metrics | None = None
    target: str = ""
    log: list[dict[str, str]] = field(default_factory=list)


@dataclass
class Journey:
    """All faults at once, each a target of one exporter: all well, all broken, all well again."""

    seen: dict[str, Seen]
    scrape_seconds: list[float]
    log: str


@pytest.fixture(scope="module")
def journey() -> Iterator[Journey]:
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(FaultyServer(replay())) for name in FAULTS}
        flags = [word for server in servers.values() for word in ("--vllm.url", server.url)]
        exporter = stack.enter_context(
            running_exporter(*flags, "--poll.interval", "3s", "--poll.timeout", "2900ms")
        )
        exporter.wait_until_up()
        for name, server in servers.items():
            server.behaviour = FAULTS[name][1]
            if server.behaviour is REFUSED:
                server.refuse()
        targets = {name: server.url for name, server in servers.items()}
        exporter.wait_for(lambda metrics: _failed(metrics, targets, 2), "poll_errors_total", within=90)
        answers = [exporter.get("/metrics") for _ in range(10)]
        during = Metrics(answers[-1].text)
        for server in servers.values():
            if server.behaviour is REFUSED:
                server.listen()
            server.behaviour = replay(start=40)
        exporter.wait_until_up()
        after, lines, log = exporter.metrics(), exporter.log_lines(), exporter.log()
        seen = {
            name: Seen(during, after, url, [line for line in lines if line.get("target") == url])
            for name, url in targets.items()
        }
        yield Journey(seen, [answer.seconds for answer in answers], log)


def _failed(metrics: Metrics, targets: dict[str, str], times: int) -> bool:
    return all(sum(metrics.errors(target=target).values()) >= times for target in targets.values())


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_counted_told_once_and_ends(journey: Journey, name: str) -> None:
    """While polls fail: `up` is 0, only this reason is counted, no series says anything of the engines.

    Once the server is well again everything is back. The log has one line for each change, not for each poll.
    """
    seen, reason = journey.seen[name], FAULTS[name][0]
    model = {"target": seen.target, "model_name": "tiny-llama", "engine": "0"}

    assert seen.during.value("up", target=seen.target) == 0
    assert [reason] == list(seen.during.errors(target=seen.target))
    assert set() == seen.during.of_engines(target=seen.target)

    assert seen.after.value("up", target=seen.target) == 1
    assert seen.after.value("drafts_total", **model) > 0
    assert len(seen.after.values("accepted_tokens_per_position_total", **model)) == 4

    lines = [line for line in seen.log if "server" in line["msg"]]
    assert [line["msg"] for line in lines] == ["server is up", "server is down", "server is up"]
    assert lines[1]["reason"] == reason
    assert len(lines[1]["error"]) < 500


class TestMeanwhile:
    def test_every_reason_is_always_present(self, journey: Journey) -> None:
        """Every reason has its series from the start, so that an increase of any can be seen."""
        seen = journey.seen["nothing listens"]
        reasons = {dict(key)["reason"] for key in seen.during.values("poll_errors_total", target=seen.target)}

        assert set(REASONS) == reasons

    def test_scrapes_are_fast(self, journey: Journey) -> None:
        """A scrape waits for no server, however many of them hang."""
        assert sorted(journey.scrape_seconds)[5] < 2.0

    def test_no_traceback(self, journey: Journey) -> None:
        """A misbehaving server is no defect of the exporter."""
        assert "Traceback" not in journey.log
        assert "internal" not in journey.log

    def test_nothing_but_the_exporters_own_lines(self, journey: Journey) -> None:
        """No library writes to the log, and nothing of a server's bytes reaches a terminal."""
        control = {c for c in journey.log if not c.isprintable()} - {"\n"}

        assert set() == control
        assert all("level" in line for seen in journey.seen.values() for line in seen.log)


def test_headers_that_do_not_matter() -> None:
    """Headers that mean nothing here may hold anything; no poll fails or is logged for them."""
    length = len(BODY)
    heads = [
        head(Content_Length=length, Set_Cookie="a\x01b==;;=;\xff"),
        head(Content_Length=length, Content_Type=";;;="),
        head(Content_Length=length, Date="yesterday", Server="\xff"),
    ]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(FaultyServer(raw(head + BODY))) for head in heads]
        flags = [word for server in servers for word in ("--vllm.url", server.url)]
        exporter = stack.enter_context(running_exporter(*flags))
        exporter.wait_until_up()
        eventually(lambda: all(len(server.polls()) > 5 for server in servers))
        metrics = exporter.metrics("poll_errors_total")
        messages = Counter(line["msg"] for line in exporter.log_lines())

        assert all(metrics.errors(target=server.url) == {} for server in servers)
        assert (messages["listening"], messages["server is up"]) == (1, 3)
        assert {"listening", "server is up", "activity"} == set(messages)


BOMB = gzip.compress(bytes(60 * MIB))
HEAVY: dict[str, Behaviour] = {
    "50 MB": answer(b"#" * 79 + b"\n" + b"x" * (50 * MIB)),
    "endless body": flood(head(version="1.0"), b"# padding\n" * 6554),
    "endless chunks": flood(head(Transfer_Encoding="chunked"), b"10000\r\n" + b"#" * 65536 + b"\r\n"),
    "gzip bomb": answer(BOMB, Content_Encoding="gzip"),
    "gzip bomb in chunks": chunked(
        *[BOMB[i : i + 1000] for i in range(0, len(BOMB), 1000)], Content_Encoding="gzip"
    ),
}


@pytest.fixture(scope="module")
def heavy() -> Iterator[tuple[FaultyServer, RunningExporter]]:
    with (
        FaultyServer(replay()) as server,
        running_exporter(
            "--vllm.url", server.url, "--poll.interval", "4s", "--poll.timeout", "3900ms"
        ) as exporter,
    ):
        yield server, exporter


@pytest.mark.parametrize("name", HEAVY)
def test_answers_that_are_too_large(heavy: tuple[FaultyServer, RunningExporter], name: str) -> None:
    """An answer beyond 16 MiB is dropped there, also when it unfolds only here, and takes no memory."""
    server, exporter = heavy
    server.behaviour = replay()
    exporter.wait_until_up()
    before = exporter.metrics().errors()
    server.behaviour = HEAVY[name]

    during = exporter.wait_for(lambda metrics: metrics if metrics.value("up") == 0 else None)

    assert Counter(before) + Counter(too_large=1) == Counter(during.errors())
    assert set() == during.of_engines()
    # The process itself takes 50 to 60 MB; an answer and its pieces at most 3 times 16 MiB on top.
    assert _memory(during) < 130 * MIB


def _memory(metrics: Metrics) -> float:
    return next(iter(metrics.samples["process_resident_memory_bytes"].values()))


def test_endless_headers() -> None:
    """A head that never ends ends the poll, before it takes the memory of the machine."""
    endless = flood(b"HTTP/1.1 200 OK\r\n", b"X-Padding: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n" * 1000)
    with (
        FaultyServer(endless) as server,
        running_exporter(
            "--vllm.url", server.url, "--poll.interval", "4s", "--poll.timeout", "3900ms"
        ) as exporter,
    ):
        metrics = exporter.wait_for(lambda metrics: metrics if metrics.errors() else None)

        assert {"malformed"} == set(metrics.errors())
        assert _memory(metrics) < 130 * MIB


def test_a_long_outage_is_quiet() -> None:
    """From the start on: one line, over however many polls."""
    with (
        FaultyServer(REFUSED) as loading,
        FaultyServer(status("503 Service Unavailable")) as broken,
    ):
        loading.refuse()
        with running_exporter("--vllm.url", loading.url, "--vllm.url", broken.url) as exporter:
            targets = {"loading": loading.url, "broken": broken.url}
            exporter.wait_for(lambda metrics: _failed(metrics, targets, 10), "poll_errors_total")
            lines = exporter.log_lines()

    assert sorted(line["msg"] for line in lines) == ["listening", "server is down", "waiting for the server"]
    levels = {line["target"]: line["level"] for line in lines if "target" in line}
    assert {loading.url: "info", broken.url: "warning"} == levels


class TestOddValues:
    """Answers that can be used, apart from what is wrong in them."""

    @pytest.fixture(scope="class")
    @staticmethod
    def odd() -> Iterator[dict[str, tuple[Metrics, list[str]]]]:
        """For each odd answer, the metrics and the defects that the snapshot tells."""
        bodies = {
            "sound": vllm(),
            "holes": vllm(without='position="1"'),
            "no positions": vllm(without="per_pos"),
            "no first position": vllm(without='position="0"'),
            "NaN gauge": vllm(more=['vllm:num_requests_running{model_name="m",engine="0"} NaN']),
            "negative gauge": vllm(more=['vllm:num_requests_running{model_name="m",engine="0"} -3']),
            "infinite gauge": vllm(more=['vllm:kv_cache_usage_perc{model_name="m",engine="0"} +Inf']),
            "bytes elsewhere": vllm() + b'other{a="\xff"} 1\nother 1 2 3 4\n',
            "exponents": value_of(DRAFTS, "1.5e+03"),
            "process ids": vllm() + vllm(replace=("{", '{pid="7",')),
            "gzip": vllm(),
        }
        with contextlib.ExitStack() as stack:
            servers = {
                name: stack.enter_context(
                    FaultyServer(
                        answer(gzip.compress(body), Content_Encoding="gzip")
                        if name == "gzip"
                        else answer(body)
                    )
                )
                for name, body in bodies.items()
            }
            flags = [word for server in servers.values() for word in ("--vllm.url", server.url)]
            exporter = stack.enter_context(running_exporter(*flags))
            exporter.wait_until_up()
            metrics = exporter.metrics()
            by_url = {target["target"]: target for target in exporter.snapshot()["targets"]}
            yield {
                name: (_of_target(metrics, server.url), by_url[server.url]["engines"][0]["defects"])
                for name, server in servers.items()
            }

    @pytest.mark.parametrize("name", ["holes", "no positions", "no first position"])
    def test_positions_that_lack(self, odd: dict[str, tuple[Metrics, list[str]]], name: str) -> None:
        """Position counters with holes are left out whole and counted; the other counters are there."""
        metrics, defects = odd[name]

        assert metrics.values("accepted_tokens_per_position_total") == {}
        assert metrics.values("accepted_tokens_per_draft_bucket") == {}
        assert (metrics.value("drafts_total"), metrics.value("accepted_tokens_total")) == (1000, 1800)
        assert metrics.value("inconsistent_samples_total") >= 1
        assert len(defects) == 1

    @pytest.mark.parametrize(
        ("name", "series"),
        [
            ("NaN gauge", "requests_running"),
            ("negative gauge", "requests_running"),
            ("infinite gauge", "kv_cache_usage_ratio"),
        ],
    )
    def test_gauges_that_cannot_be(
        self, odd: dict[str, tuple[Metrics, list[str]]], name: str, series: str
    ) -> None:
        """An impossible gauge is left out and counted; the counters are there."""
        metrics, defects = odd[name]

        assert metrics.value(series) is None
        assert metrics.value("drafts_total") == 1000
        assert metrics.value("inconsistent_samples_total") >= 1
        assert len(defects) == 1

    @pytest.mark.parametrize(
        ("name", "drafts"),
        [
            ("sound", 1000),
            ("bytes elsewhere", 1000),
            ("exponents", 1500),
            ("process ids", 2000),
            ("gzip", 1000),
        ],
    )
    def test_what_is_not_wrong(
        self, odd: dict[str, tuple[Metrics, list[str]]], name: str, drafts: float
    ) -> None:
        """Lines that are not of interest may hold anything; extra labels are summed away."""
        metrics, defects = odd[name]

        assert drafts == metrics.value("drafts_total")
        assert len(metrics.values("accepted_tokens_per_position_total")) == 4
        assert metrics.value("inconsistent_samples_total") == 0
        assert defects == []


def _of_target(metrics: Metrics, target: str) -> Metrics:
    """The samples of one target, without the label."""
    own = Metrics("")
    for name, samples in metrics.samples.items():
        for key, value in samples.items():
            if ("target", target) in key:
                own.samples.setdefault(name, {})[tuple(p for p in key if p[0] != "target")] = value
    return own


FALLING = (
    "num_drafts_total",
    "num_draft_tokens_total",
    "num_accepted_tokens_total",
    'position="0"',
    'position="3"',
    "generation_tokens_total",
)


@dataclass
class Fall:
    """What was seen of a server before and after one of its counters fell."""

    before: Metrics
    after: Metrics
    log: list[str]


class TestFallingCounters:
    """A single counter that falls is a restart: windows begin anew, nothing is subtracted across it."""

    @pytest.fixture(scope="class")
    @staticmethod
    def falls() -> Iterator[dict[str, Fall]]:
        """A server for each counter, in one exporter."""
        with contextlib.ExitStack() as stack:
            servers = {name: stack.enter_context(FaultyServer(answer(vllm()))) for name in FALLING}
            flags = [word for server in servers.values() for word in ("--vllm.url", server.url)]
            exporter = stack.enter_context(running_exporter(*flags, "--window", "30s"))
            count = len(servers)

            def polled_twice(metrics: Metrics) -> Metrics | None:
                return metrics if len(metrics.values("window_span_seconds")) == count else None

            def polled_long(metrics: Metrics) -> Metrics | None:
                spans = metrics.values("window_span_seconds").values()
                return metrics if len(spans) == count and min(spans) > 1.1 else None

            before = exporter.wait_for(polled_long)
            for name, server in servers.items():
                server.behaviour = answer(value_of(name, "1"))
            exporter.wait_for(
                lambda metrics: sum(metrics.values("engine_resets_total").values()) == count,
                "engine_resets_total",
            )
            after = exporter.wait_for(polled_twice)
            lines = exporter.log_lines("counters started anew")
            yield {
                name: Fall(
                    _of_target(before, server.url),
                    _of_target(after, server.url),
                    [line["msg"] for line in lines if line["target"] == server.url],
                )
                for name, server in servers.items()
            }

    @pytest.mark.parametrize("name", FALLING)
    def test_is_a_reset(self, falls: dict[str, Fall], name: str) -> None:
        """Each counter's fall is seen by itself, counted once and told once."""
        fall = falls[name]

        assert (fall.before.value("engine_resets_total"), fall.after.value("engine_resets_total")) == (0, 1)
        assert fall.after.errors() == {}
        assert fall.log == ["counters started anew"]

    @pytest.mark.parametrize("name", FALLING)
    def test_begins_anew(self, falls: dict[str, Fall], name: str) -> None:
        """The window reaches back to the fall and no further, so nothing negative comes of it."""
        fall = falls[name]

        assert fall.after.value("window_drafts") == 0
        assert fall.after.value("window_span_seconds") < fall.before.value("window_span_seconds")
        assert fall.after.value("acceptance_ratio") is None


NASTY = [
    "meta-llama/Llama-3.1-8B-Instruct",
    'a"b',
    "a\\b",
    "a\\",
    "a\nb",
    "a\\nb",
    'a="b",c="d"} 7 # {',
    " a  b ",
    "модель 模型 🦙",
    "\x1b[31mred\x07\x9b",
    "a\rb\tc\u2028d\x85e",
    "<script>alert(1)</script>",
]


class TestLabels:
    @pytest.fixture(scope="class")
    @staticmethod
    def exporter() -> Iterator[RunningExporter]:
        """An exporter of one server whose engines have all the names."""
        names = [line for name in NASTY for line in vllm_lines(COUNTED, model_name=name, engine="0")]
        with (
            FaultyServer(answer(text(*names))) as server,
            # A poll that were late on a busy machine would take the names away for a moment.
            running_exporter(
                *("--vllm.url", server.url, "--log.interval", "200ms"),
                *("--poll.interval", "2s", "--poll.timeout", "1900ms"),
            ) as exporter,
        ):
            exporter.wait_until_up()
            eventually(lambda: len(exporter.log_lines("aggregate")) >= len(NASTY))
            yield exporter

    @pytest.mark.parametrize("name", NASTY)
    def test_round_trip(self, exporter: RunningExporter, name: str) -> None:
        """Whatever the server calls its model, the label says the same."""
        assert exporter.metrics().value("drafts_total", model_name=name) == 1000

    def test_escapes(self, exporter: RunningExporter) -> None:
        """In the exposition, backslash, quote and newline are escaped."""
        lines = [line for line in exporter.get("/metrics").text.split("\n") if "drafts_total{" in line]
        own = [line for line in lines if line.startswith("vllm_specdec_drafts_total{")]

        assert len(NASTY) == len(own)
        assert r'vllm_specdec_drafts_total{engine="0",model_name="a\nb"} 1000.0' in own
        assert r'vllm_specdec_drafts_total{engine="0",model_name="a\\nb"} 1000.0' in own
        assert r'vllm_specdec_drafts_total{engine="0",model_name="a\\"} 1000.0' in own
        assert r'vllm_specdec_drafts_total{engine="0",model_name="a\"b"} 1000.0' in own

    def test_snapshot(self, exporter: RunningExporter) -> None:
        """The JSON has the names as they are."""
        engines = exporter.snapshot()["targets"][0]["engines"]

        assert sorted(NASTY) == [engine["model_name"] for engine in engines]

    def test_log(self, exporter: RunningExporter) -> None:
        """Each line of the log is one line, and its fields give the names back."""
        assert set(NASTY) == {line["model_name"] for line in exporter.log_lines("aggregate")}

    def test_no_control_character_reaches_the_terminal(self, exporter: RunningExporter) -> None:
        """A model's name cannot recolour, retitle or overwrite the terminal of whoever reads the log."""
        log = exporter.log()

        assert set() == {c for c in log if ord(c) < 32 or 0x7F <= ord(c) < 0xA0} - {"\n"}


def test_recovery_begins_where_it_should() -> None:
    """After answers that were cut off, the window reaches across the gap; after the server was gone, not."""
    with FaultyServer(replay()) as server, running_exporter("--vllm.url", server.url) as exporter:
        exporter.wait_for(lambda metrics: metrics.value("window_span_seconds", window="30s"))
        server.behaviour = answer(BODY[:-5])
        exporter.wait_for(lambda metrics: metrics.errors().get("malformed", 0) >= 3)
        server.behaviour = replay(start=40)
        across = exporter.wait_for(lambda metrics: metrics.value("window_span_seconds", window="30s"))

        server.refuse()
        exporter.wait_for(lambda metrics: metrics.errors().get("refused", 0) >= 3)
        server.behaviour = replay(start=60)
        server.listen()
        anew = exporter.wait_for(lambda metrics: metrics.value("window_span_seconds", window="30s"))

        # From before three failed polls to after them, at 500 ms each.
        assert across > 1.5
        assert anew < across
        assert exporter.metrics().value("engine_resets_total") == 0


def test_values_follow_the_server() -> None:
    """Derived values come from the very increases between the server's answers."""
    first = Counters(100, 400, 150, (80, 40, 20, 10), 300)
    second = Counters(300, 1200, 650, (280, 190, 120, 60), 1300)
    bodies = [text(*vllm_lines(c, model_name="m", engine="0")) for c in (first, second)]
    with FaultyServer(sequence(bodies)) as server, running_exporter("--vllm.url", server.url) as exporter:
        metrics = exporter.wait_for(lambda m: m if m.value("window_drafts", window="30s") == 200 else None)

        own = {"window": "30s", "model_name": "m", "engine": "0"}
        assert metrics.value("acceptance_ratio", **own) == 500 / 800
        assert metrics.value("mean_acceptance_length", **own) == 1 + 500 / 200
        assert metrics.value("coverage_ratio", **own) == 0.7
        assert list(metrics.values("position_acceptance_ratio", **own).values()) == [1.0, 0.75, 0.5, 0.25]
