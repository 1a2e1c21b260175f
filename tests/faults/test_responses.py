"""Faulty responses of the server, all at once: what the exporter reports meanwhile, and
its recovery.
"""

import contextlib
import gzip
import re
from collections.abc import Iterable, Iterator, Mapping

from faults.rig import vllm
from support.exporter import Metrics, RunningExporter, running_exporter
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
    status,
)
from support.programs import eventually
from vllm_specdec_exporter.observe.result import REASONS

#: A late poll, on a busy machine, would be counted as a timeout.
SLOW = ("--poll.interval", "4s", "--poll.timeout", "3900ms")
BODY = capture()
WHOLE = head(Content_Type="text/plain", Content_Length=len(BODY)) + BODY
HALF = len(BODY) // 2


def without(text: bytes) -> bytes:
    """A small vLLM answer without the lines that hold this text."""
    return b"".join(
        line for line in vllm().splitlines(keepends=True) if text not in line
    )


def drafts(value: bytes) -> bytes:
    """A small vLLM answer in which the number of drafts has this value."""
    return re.sub(rb"(spec_decode_num_drafts_total{.*}) .*", rb"\1 " + value, vllm())


REFUSED = Behaviour(replay().run)  # the journey below closes the port for it

#: Every fault, the reason that must count it, and what the server does. Names with _
#: are in the catalogue.
FAULTS: dict[str, tuple[str, Behaviour]] = {
    # No answer.
    "refused": ("refused", REFUSED),
    "resets at once": ("reset", raw(reads_request=False, reset=True)),
    "closes_at_once": ("reset", raw(reads_request=False)),
    "resets after the request": ("reset", raw(reset=True)),
    "closes after the request": ("reset", raw()),
    "closes within the head": (
        "reset",
        raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/pl"),
    ),
    # Too slow.
    "accepts and is silent": ("timeout", hang(reads_request=False)),
    "hangs_before_headers": ("timeout", hang()),
    "hangs before the body": ("timeout", hang(head(Content_Length=len(BODY)))),
    "hangs_within_body": ("timeout", hang(WHOLE[:HALF])),
    "hangs before the last byte": ("timeout", hang(WHOLE[:-1])),
    "hangs before the last chunk": (
        "timeout",
        hang(head(Transfer_Encoding="chunked"), b"%x\r\n%s\r\n" % (len(BODY), BODY)),
    ),
    "does not close where only that ends the body": (
        "timeout",
        hang(head(version="1.0") + BODY),
    ),
    "drips the head": ("timeout", drip(b"HTTP/1.1 200 OK\r\nX-Padding: ", b"x", 0.05)),
    "drips": ("timeout", drip(head(Content_Length=len(BODY)), b"#", 0.05)),
    "never gets to the final head": (
        "timeout",
        drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05),
    ),
    # Cut off.
    "truncated": ("malformed", raw(WHOLE[:HALF])),
    "resets_within_body": ("malformed", raw(WHOLE[:HALF], 0.1, reset=True)),
    "lacks the last byte": ("malformed", raw(WHOLE[:-1])),
    "closes within a body of unknown length": (
        "malformed",
        raw(head() + BODY[: HALF + 20]),
    ),
    "closes within a chunk": (
        "malformed",
        raw(head(Transfer_Encoding="chunked"), b"ffff\r\n" + BODY[:99]),
    ),
    "lacks the last chunk": ("malformed", chunked(BODY, end=b"")),
    "OpenMetrics without EOF": ("malformed", answer(BODY, content_type=OPENMETRICS)),
    # No HTTP.
    "http_garbage": (
        "malformed",
        raw(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", reads_request=False),
    ),
    "TLS alert": ("malformed", raw(b"\x15\x03\x01\x00\x02\x02\x46")),
    "metrics without a head": ("malformed", raw(BODY)),
    "chunk size is no number": (
        "malformed",
        raw(head(Transfer_Encoding="chunked") + b"xyz\r\nabc\r\n"),
    ),
    "length is no number": ("malformed", answer(BODY, Content_Length="many")),
    "two lengths": ("malformed", raw(head(Content_Length=5, content_length=6) + BODY)),
    "endless_headers": (
        "malformed",
        flood(b"HTTP/1.1 200 OK\r\n", b"X-Padding: xxxxxxxxxxxxxxxx\r\n" * 1000),
    ),
    "endless header line": (
        "malformed",
        flood(b"HTTP/1.1 200 OK\r\nX-Padding: ", b"x" * 4096),
    ),
    # No success.
    "unauthorized": (
        "http_status",
        status("401 Unauthorized", WWW_Authenticate='Basic realm="vllm"'),
    ),
    "forbidden": ("http_status", status("403 Forbidden")),
    "unavailable": ("http_status", status("503 Service Unavailable", Retry_After=3600)),
    "error_with_metrics": ("http_status", answer(BODY, "503 Service Unavailable")),
    "204": ("http_status", raw(b"HTTP/1.1 204 No Content\r\n\r\n")),
    "206": ("http_status", status("206 Partial Content")),
    "not_found": ("http_status", status("404 Not Found")),
    "server_error": ("http_status", status("500 Internal Server Error")),
    "500 with a body that never ends": (
        "http_status",
        drip(head("500 Oh", Content_Length=99), b"x", 0.05),
    ),
    "500 with a long excuse": ("http_status", status("500 " + "sorry " * 1000)),
    "500 whose excuse has control characters": (
        "http_status",
        status("500 \x1b[31mred\x1b[0m \x9b31m"),
    ),
    "redirect": ("redirect", status("301 Moved Permanently", Location="/other")),
    "308 without a location": ("redirect", status("308 Permanent Redirect")),
    "304": ("redirect", raw(b"HTTP/1.1 304 Not Modified\r\n\r\n")),
    # No metrics.
    "20 MB": ("too_large", answer(b"#" * 79 + b"\n" + b"x" * 20_000_000)),
    "html": (
        "malformed",
        answer(b"<!DOCTYPE html>\n<title>Login</title>\n", content_type="text/html"),
    ),
    "JSON": (
        "malformed",
        answer(b'{"object":"error"}', content_type="application/json"),
    ),
    "binary": ("malformed", answer(bytes(reversed(range(256))) * 64)),
    "UTF-16": ("malformed", answer(BODY.decode().encode("utf-16-le"))),
    "empty": ("unrecognized", answer(b"")),
    "metrics of another program": ("unrecognized", answer(b"node_load1 0.5\n")),
    "OpenMetrics with nothing in it": (
        "unrecognized",
        answer(b"# EOF\n", content_type=OPENMETRICS),
    ),
    # Wrong encodings.
    "gzip": ("malformed", answer(gzip.compress(BODY), Content_Encoding="gzip")),
    "unasked_encoding": ("malformed", answer(BODY, Content_Encoding="br")),
    # Impossible values.
    "nan_counter": ("malformed", answer(drafts(b"NaN"))),
    "negative_counter": ("malformed", answer(drafts(b"-1"))),
    "huge_counter": ("malformed", answer(drafts(b"1e300"))),
    "half_written": ("malformed", answer(BODY[: BODY.rindex(b"accepted") + 4])),
    "many_engines": ("malformed", answer(vllm(engines=1000))),
    "no number": ("malformed", answer(drafts(b"many"))),
    "duplicate_samples": ("malformed", answer(vllm() + vllm())),
    "a position that is no number": (
        "malformed",
        answer(vllm().replace(b'position="2"', b'position="b"')),
    ),
    "a position out of all proportion": (
        "malformed",
        answer(vllm().replace(b'"2"', b'"99999999999"')),
    ),
    "labels that are not UTF-8": (
        "malformed",
        answer(vllm().replace(b'"m"', b'"\xff\xfe"')),
    ),
    "labels that do not end": ("malformed", answer(vllm().replace(b'"m"', b'"m'))),
}


@contextlib.contextmanager
def watching(
    behaviours: Mapping[str, Behaviour], *flags: str
) -> Iterator[tuple[RunningExporter, dict[str, FaultyServer]]]:
    """An exporter that polls a server for each behaviour."""
    with contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(FaultyServer(each))
            for name, each in behaviours.items()
        }
        urls = [
            word for server in servers.values() for word in ("--vllm.url", server.url)
        ]
        yield stack.enter_context(running_exporter(*urls, *flags)), servers


def _failed(metrics: Metrics, servers: Iterable[FaultyServer], times: int) -> bool:
    return all(
        sum(metrics.errors(target=server.url).values()) >= times for server in servers
    )


def test_faults_are_counted_told_once_and_end() -> None:
    """While polls fail: `up` is 0, only this reason is counted, no series says anything
    of the engines.

    Once the server is well again everything is back. The log has one line for each
    change, not for each poll. Nothing but the exporter's own lines is in it, and no
    character that a terminal would obey.
    """
    with watching({name: replay() for name in FAULTS}, *SLOW) as (exporter, servers):
        exporter.wait_until_up()
        for name, server in servers.items():
            server.behaviour = FAULTS[name][1]
            if server.behaviour is REFUSED:
                server.refuse()
        exporter.wait_for(
            lambda m: _failed(m, servers.values(), 2), "poll_errors_total"
        )
        answers = [exporter.get("/metrics") for _ in range(10)]
        during = Metrics(answers[-1].text)
        for server in servers.values():
            if server.behaviour is REFUSED:
                server.listen()
            server.behaviour = replay(start=40)
        exporter.wait_until_up()
        mended = exporter.metrics()
        lines = exporter.log_lines()
        log = exporter.log()

    wrong = []
    for name, server in servers.items():
        target = {"target": server.url}
        reason = FAULTS[name][0]
        logged = [x for x in lines if x.get("target") == server.url]
        changes = [x for x in logged if "server" in x["msg"]]
        reported = (
            during.value("up", **target),
            list(during.errors(**target)),
            {
                dict(key)["reason"]
                for key in during.values("poll_errors_total", **target)
            },
            during.of_engines(**target),
            mended.value("up", **target),
            mended.total("drafts_total", **target) > 0,
            len(mended.values("accepted_tokens_per_position_total", **target)),
            [(x["msg"], x.get("reason", "")) for x in changes],
            all(len(x.get("error", "")) < 500 for x in changes),
        )
        up = ("server is up", "")
        down = ("server is down", reason)
        expected = (0, [reason], set(REASONS), set(), 1, True, 4, [up, down, up], True)
        if reported != expected:
            wrong.append(f"{name}: {reported} instead of {expected}")
    assert wrong == []
    # A scrape waits for no server, however many of them hang.
    assert sorted(answer.seconds for answer in answers)[5] < 2.0
    assert "Traceback" not in log
    assert "internal" not in log
    assert {c for c in log if not c.isprintable()} == {"\n"}
    assert all("level" in line for line in lines)


def test_a_long_outage_is_quiet() -> None:
    """From the start on: one line, over however many polls."""
    with (
        FaultyServer(REFUSED) as loading,
        FaultyServer(status("503 Service Unavailable")) as broken,
    ):
        loading.refuse()
        with running_exporter(
            "--vllm.url", loading.url, "--vllm.url", broken.url
        ) as exporter:
            exporter.wait_for(
                lambda m: _failed(m, (loading, broken), 10), "poll_errors_total"
            )
            lines = exporter.log_lines()

    assert sorted(line["msg"] for line in lines) == [
        "listening",
        "server is down",
        "waiting for the server",
    ]
    levels = {line["target"]: line["level"] for line in lines if "target" in line}
    assert {loading.url: "info", broken.url: "warning"} == levels


RUNNING = b'vllm:num_requests_running{model_name="m",engine="0"}'
CACHE = b'vllm:kv_cache_usage_perc{model_name="m",engine="0"}'
POSITIONS = ("accepted_tokens_per_position_total", "accepted_tokens_per_draft_bucket")
#: Answers that can be used apart from what is wrong: the series that are left out for
#: it, and the drafts.
ODD: list[tuple[str, Behaviour, tuple[str, ...], float]] = [
    ("holes", answer(without(b'position="1"')), POSITIONS, 1000),
    ("no positions", answer(without(b"per_pos")), POSITIONS, 1000),
    ("no first position", answer(without(b'position="0"')), POSITIONS, 1000),
    ("NaN gauge", answer(vllm() + RUNNING + b" NaN\n"), ("requests_running",), 1000),
    (
        "negative gauge",
        answer(vllm() + RUNNING + b" -3\n"),
        ("requests_running",),
        1000,
    ),
    (
        "infinite gauge",
        answer(vllm() + CACHE + b" +Inf\n"),
        ("kv_cache_usage_ratio",),
        1000,
    ),
    # Lines that are not of interest may hold anything, and so may headers; other labels
    # are summed away.
    (
        "bytes elsewhere",
        answer(vllm() + b'other{a="\xff"} 1\nother 1 2 3 4\n'),
        (),
        1000,
    ),
    ("exponents", answer(drafts(b"1.5e+03")), (), 1500),
    ("process ids", answer(vllm() + vllm().replace(b"{", b'{pid="7",')), (), 2000),
    ("odd cookie", answer(vllm(), Set_Cookie="a\x01b==;;=;\xff"), (), 1000),
    ("odd type", answer(vllm(), content_type=";;;="), (), 1000),
    ("wrong_content_type", answer(vllm(), content_type="application/json"), (), 1000),
    ("odd date and server", answer(vllm(), Date="yesterday", Server="\xff"), (), 1000),
]


def test_odd_values_are_left_out_and_the_rest_is_used() -> None:
    """What cannot be is left out whole, counted and told as a defect; the other
    counters are there.
    """
    with watching({name: behaviour for name, behaviour, _, _ in ODD}, *SLOW) as (
        exporter,
        servers,
    ):
        exporter.wait_until_up()
        metrics = exporter.metrics()
        lines = exporter.log_lines()
        engines = {
            target["target"]: target["engines"]
            for target in exporter.snapshot()["targets"]
        }

    wrong = []
    for name, _, missing, drafts in ODD:
        labels = {"target": servers[name].url}
        reported = (
            metrics.value("drafts_total", **labels),
            metrics.value("accepted_tokens_total", **labels) in (1600, 3200),
            [series for series in missing if metrics.values(series, **labels)],
            bool(metrics.values(POSITIONS[0], **labels)),
            metrics.total("inconsistent_samples_total", **labels) > 0,
            len(engines[labels["target"]][0]["defects"]),
            metrics.errors(**labels),
            {x["msg"] for x in lines if x.get("target") == labels["target"]}
            - {"server is up", "activity"},
        )
        odd = bool(missing)
        expected = (drafts, True, [], missing != POSITIONS, odd, int(odd), {}, set())
        if odd:  # what is told of a defect is told elsewhere
            reported = reported[:-1]
            expected = expected[:-1]
        if reported != expected:
            wrong.append(f"{name}: {reported} instead of {expected}")
    assert wrong == []
    assert [line["msg"] for line in lines if "target" not in line] == ["listening"]


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
    "evil\u202egnp\u2066",
]


def test_names_of_models() -> None:
    """Whatever a model is called, labels, the snapshot and the log say the same; no
    terminal obeys it.
    """
    names = b"".join(vllm(model=name) for name in NASTY)
    with watching({"only": answer(names)}, *SLOW, "--log.interval", "200ms") as (
        exporter,
        _,
    ):
        exporter.wait_until_up()
        eventually(lambda: len(exporter.log_lines("aggregate")) >= len(NASTY))
        exposition = exporter.get("/metrics").text
        engines = exporter.snapshot()["targets"][0]["engines"]
        log = exporter.log()
        json_text = exporter.get("/api/v1/snapshot").text
        logged = {line["model_name"] for line in exporter.log_lines("aggregate")}

    drafts = Metrics(exposition).values("drafts_total")
    assert {
        dict(key)["model_name"]: value for key, value in drafts.items()
    } == dict.fromkeys(NASTY, 1000)
    samples = [
        line
        for line in exposition.split("\n")
        if line.startswith("vllm_specdec_drafts_total{")
    ]
    assert len(samples) == len(NASTY)
    for escaped in (r"a\nb", r"a\\nb", r"a\\", r"a\"b"):
        assert (
            rf'vllm_specdec_drafts_total{{engine="0",model_name="{escaped}"}} 1000.0'
            in samples
        ), escaped
    assert sorted(NASTY) == [engine["model_name"] for engine in engines]
    assert set(NASTY) == logged
    assert not re.search(
        "[\0-\t\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", log + json_text
    )


def test_recovery_begins_where_it_should() -> None:
    """After answers that were cut off, the window reaches across the gap; after the
    server was gone, not.
    """
    with (
        FaultyServer(replay()) as server,
        running_exporter("--vllm.url", server.url) as exporter,
    ):
        exporter.wait_for(
            lambda metrics: metrics.value("window_span_seconds", window="30s")
        )
        server.behaviour = answer(BODY[:-5])
        exporter.wait_for(lambda metrics: metrics.errors().get("malformed", 0) >= 3)
        server.behaviour = replay(start=40)
        across = exporter.wait_for(
            lambda metrics: metrics.value("window_span_seconds", window="30s")
        )

        server.refuse()
        exporter.wait_for(lambda metrics: metrics.errors().get("refused", 0) >= 3)
        server.behaviour = replay(start=60)
        server.listen()
        anew = exporter.wait_for(
            lambda metrics: metrics.value("window_span_seconds", window="30s")
        )

        # From before three failed polls to after them, at 500 ms each.
        assert across > 1.5
        assert anew < across
        assert exporter.metrics().value("engine_resets_total") == 0
