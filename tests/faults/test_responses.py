"""Faulty responses of the server, all at once: what the exporter reports meanwhile, and
its recovery.
"""

import contextlib
import gzip
import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

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


WELL = answer(BODY)
REFUSED = Behaviour(WELL.run)  # the journey below closes the port for it

#: By the reason that must count it, every fault and what the server does. Names with _
#: are in the catalogue.
FAULTS = {
    "refused": {
        "refused": REFUSED,
    },
    "reset": {
        "resets at once": raw(reads_request=False, reset=True),
        "closes_at_once": raw(reads_request=False),
        "resets after the request": raw(reset=True),
        "closes after the request": raw(),
        "closes within the head": raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/pl"),
    },
    "timeout": {
        "accepts and is silent": hang(reads_request=False),
        "hangs_before_headers": hang(),
        "hangs before the body": hang(head(Content_Length=len(BODY))),
        "hangs_within_body": hang(WHOLE[:HALF]),
        "hangs before the last byte": hang(WHOLE[:-1]),
        "hangs before the last chunk": hang(
            head(Transfer_Encoding="chunked"), b"%x\r\n%s\r\n" % (len(BODY), BODY)
        ),
        "does not close where only that ends the body": hang(
            head(version="1.0") + BODY
        ),
        "drips the head": drip(b"HTTP/1.1 200 OK\r\nX-Padding: ", b"x", 0.05),
        "drips": drip(head(Content_Length=len(BODY)), b"#", 0.05),
        "never gets to the final head": drip(
            b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05
        ),
    },
    "malformed": {
        # Cut off.
        "truncated": raw(WHOLE[:HALF]),
        "resets_within_body": raw(WHOLE[:HALF], 0.1, reset=True),
        "lacks the last byte": raw(WHOLE[:-1]),
        "closes within a body of unknown length": raw(head() + BODY[: HALF + 20]),
        "closes within a chunk": raw(
            head(Transfer_Encoding="chunked"), b"ffff\r\n" + BODY[:99]
        ),
        "lacks the last chunk": chunked(BODY, end=b""),
        "OpenMetrics without EOF": answer(BODY, content_type=OPENMETRICS),
        # No HTTP.
        "http_garbage": raw(
            b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", reads_request=False
        ),
        "TLS alert": raw(b"\x15\x03\x01\x00\x02\x02\x46"),
        "metrics without a head": raw(BODY),
        "chunk size is no number": raw(
            head(Transfer_Encoding="chunked") + b"xyz\r\nabc\r\n"
        ),
        "length is no number": answer(BODY, Content_Length="many"),
        "two lengths": raw(head(Content_Length=5, content_length=6) + BODY),
        "endless_headers": flood(
            b"HTTP/1.1 200 OK\r\n", b"X-Padding: xxxxxxxxxxxxxxxx\r\n" * 1000
        ),
        "endless header line": flood(b"HTTP/1.1 200 OK\r\nX-Padding: ", b"x" * 4096),
        # No metrics.
        "html": answer(
            b"<!DOCTYPE html>\n<title>Login</title>\n", content_type="text/html"
        ),
        "JSON": answer(b'{"object":"error"}', content_type="application/json"),
        "binary": answer(bytes(reversed(range(256))) * 64),
        "UTF-16": answer(BODY.decode().encode("utf-16-le")),
        # Wrong encodings.
        "gzip": answer(gzip.compress(BODY), Content_Encoding="gzip"),
        "unasked_encoding": answer(BODY, Content_Encoding="br"),
        # Impossible values.
        "nan_counter": answer(drafts(b"NaN")),
        "negative_counter": answer(drafts(b"-1")),
        "huge_counter": answer(drafts(b"1e300")),
        "half_written": answer(BODY[: BODY.rindex(b"accepted") + 4]),
        "many_engines": answer(vllm(engines=1000)),
        "duplicate_samples": answer(vllm() + vllm()),
        "a position that is no number": answer(
            vllm().replace(b'position="2"', b'position="b"')
        ),
        "a position out of all proportion": answer(
            vllm().replace(b'"2"', b'"99999999999"')
        ),
    },
    "http_status": {
        "unauthorized": status(
            "401 Unauthorized", WWW_Authenticate='Basic realm="vllm"'
        ),
        "forbidden": status("403 Forbidden"),
        "unavailable": status("503 Service Unavailable", Retry_After=3600),
        "error_with_metrics": answer(BODY, "503 Service Unavailable"),
        "204": raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
        "206": status("206 Partial Content"),
        "not_found": status("404 Not Found"),
        "server_error": status("500 Internal Server Error"),
        "500 with a body that never ends": drip(
            head("500 Oh", Content_Length=99), b"x", 0.05
        ),
        "500 with a long excuse": status("500 " + "sorry " * 1000),
        "500 whose excuse has control characters": status(
            "500 \x1b[31mred\x1b[0m \x9b31m"
        ),
    },
    "redirect": {
        "redirect": status("301 Moved Permanently", Location="/other"),
        "308 without a location": status("308 Permanent Redirect"),
        "304": raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"),
    },
    "too_large": {
        "20 MB": answer(b"#" * 79 + b"\n" + b"x" * 20_000_000),
    },
    "unrecognized": {
        "empty": answer(b""),
        "metrics of another program": answer(b"node_load1 0.5\n"),
        "OpenMetrics with nothing in it": answer(b"# EOF\n", content_type=OPENMETRICS),
    },
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
        urls = [f"--vllm.url={server.url}" for server in servers.values()]
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
    faults = dict(ChainMap(*FAULTS.values()))
    with watching(dict.fromkeys(faults, WELL), *SLOW) as (exporter, servers):
        exporter.wait_until_up()
        for name, server in servers.items():
            server.behaviour = faults[name]
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

    up = ("server is up", "")
    wrong = {}
    for reason, names in FAULTS.items():
        for name in names:
            target = {"target": servers[name].url}
            logged = [line for line in lines if line.get("target") == target["target"]]
            changes = [
                (line["msg"], line.get("reason", ""))
                for line in logged
                if "server" in line["msg"]
            ]
            seen_of_it = {
                "up": during.value("up", **target),
                "errors": list(during.errors(**target)),
                "reasons": len(during.values("poll_errors_total", **target)),
                "engines": during.of_engines(**target),
                "up again": mended.value("up", **target),
                "drafts again": mended.total("drafts_total", **target) > 0,
                "changes": changes,
                "long": [line for line in logged if len(line.get("error", "")) >= 500],
            }
            if seen_of_it != {
                "up": 0,
                "errors": [reason],
                "reasons": len(REASONS),
                "engines": set(),
                "up again": 1,
                "drafts again": True,
                "changes": [up, ("server is down", reason), up],
                "long": [],
            }:
                wrong[name] = seen_of_it
    assert wrong == {}
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


class Odd(NamedTuple):
    """An answer that can be used apart from what is wrong in it."""

    behaviour: Behaviour
    missing: tuple[str, ...] = ()  # the series that are left out for it
    drafts: float = 1000


ODD = {
    "holes": Odd(answer(without(b'position="1"')), POSITIONS),
    "no positions": Odd(answer(without(b"per_pos")), POSITIONS),
    "no first position": Odd(answer(without(b'position="0"')), POSITIONS),
    "NaN gauge": Odd(answer(vllm() + RUNNING + b" NaN\n"), ("requests_running",)),
    "negative gauge": Odd(answer(vllm() + RUNNING + b" -3\n"), ("requests_running",)),
    "infinite gauge": Odd(
        answer(vllm() + CACHE + b" +Inf\n"), ("kv_cache_usage_ratio",)
    ),
    # Lines that are not of interest may hold anything, and so may headers; other labels
    # are summed away.
    "bytes elsewhere": Odd(answer(vllm() + b'other{a="\xff"} 1\nother 1 2 3 4\n')),
    "exponents": Odd(answer(drafts(b"1.5e+03")), drafts=1500),
    "process ids": Odd(
        answer(vllm() + vllm().replace(b"{", b'{pid="7",')), drafts=2000
    ),
    "odd cookie": Odd(answer(vllm(), Set_Cookie="a\x01b==;;=;\xff")),
    "odd type": Odd(answer(vllm(), content_type=";;;=")),
    "wrong_content_type": Odd(answer(vllm(), content_type="application/json")),
    "odd date and server": Odd(answer(vllm(), Date="yesterday", Server="\xff")),
}


def test_odd_values_are_left_out_and_the_rest_is_used() -> None:
    """What cannot be is left out whole, counted and told as a defect; the other
    counters are there.
    """
    behaviours = {name: odd.behaviour for name, odd in ODD.items()}
    with watching(behaviours, *SLOW) as (exporter, servers):
        exporter.wait_until_up()
        metrics = exporter.metrics()
        lines = exporter.log_lines()
        targets = exporter.snapshot()["targets"]

    engines = {target["target"]: target["engines"] for target in targets}
    wrong = {}
    for name, odd in ODD.items():
        labels = {"target": servers[name].url}
        logged = {
            line["msg"] for line in lines if line.get("target") == labels["target"]
        }
        has_defect = bool(odd.missing)
        seen_of_it = {
            "drafts": metrics.value("drafts_total", **labels),
            "accepted": metrics.value("accepted_tokens_total", **labels)
            in (1600, 3200),
            "there": [name for name in odd.missing if metrics.values(name, **labels)],
            "positions": bool(metrics.values(POSITIONS[0], **labels)),
            "counted": metrics.total("inconsistent_samples_total", **labels) > 0,
            "defects": len(engines[labels["target"]][0]["defects"]),
            "errors": metrics.errors(**labels),
            # The lines about defects have tests of their own.
            "quiet": has_defect or logged <= {"server is up", "activity"},
        }
        if seen_of_it != {
            "drafts": odd.drafts,
            "accepted": True,
            "there": [],
            "positions": odd.missing != POSITIONS,
            "counted": has_defect,
            "defects": int(has_defect),
            "errors": {},
            "quiet": True,
        }:
            wrong[name] = seen_of_it
    assert wrong == {}
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

    metrics = Metrics(exposition)
    for name in NASTY:
        assert metrics.value("drafts_total", model_name=name) == 1000, name
    samples = re.findall(r"^vllm_specdec_drafts_total{.*", exposition, re.MULTILINE)
    assert len(samples) == len(NASTY)
    # The other names are read back by Prometheus' own parser, above.
    for escaped in (r"a\nb", r"a\\nb", r"a\\", r"a\"b"):
        labels = rf'{{engine="0",model_name="{escaped}"}}'
        assert f"vllm_specdec_drafts_total{labels} 1000.0" in samples, escaped
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
