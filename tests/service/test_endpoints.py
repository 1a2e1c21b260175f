"""The HTTP endpoints of a running exporter, and `get_metrics()` against it."""

import asyncio
import gzip
import html
import itertools
import json
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import jsonschema
import pytest
import yaml
from aiohttp.test_utils import make_mocked_request
from msgspec.structs import replace
from prometheus_client.exposition import choose_encoder

from golden.cases import CASES, run
from golden.test_golden import ACCEPT
from statuspage.examples import engine, page_of, target
from support.exporter import RunningExporter, request, running_exporter
from support.faulty_server import (
    Behaviour,
    FaultyServer,
    answer,
    capture,
    hang,
    head,
    raw,
    replay,
    status,
)
from support.programs import eventually
from vllm_specdec_exporter import SnapshotError, __version__, get_metrics
from vllm_specdec_exporter.observe.result import ExporterResult
from vllm_specdec_exporter.publish import snapshot
from vllm_specdec_exporter.publish.metrics import METRICS
from vllm_specdec_exporter.publish.metrics_text import metrics_text
from vllm_specdec_exporter.publish.status_page import CONTENT_SECURITY_POLICY
from vllm_specdec_exporter.serve.endpoints import make_handler
from vllm_specdec_exporter.serve.texts import Texts


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    """Two engines of one server whose counters stand still, so that all publishers see
    the same values.
    """
    with FaultyServer(answer(capture("dp2"))) as server:
        server.version = answer(b'{"version": "0.32.0"}')
        yield server


@pytest.fixture(scope="module")
def exporter(server: FaultyServer) -> Iterator[RunningExporter]:
    """An exporter that has published all its windows, and then polls no more."""
    spec = json.dumps({"method": "ngram", "num_speculative_tokens": 3})
    flags = ("--spec.config", spec, "--poll.interval", "1s", "--poll.timeout", "900ms")
    with running_exporter("--vllm.url", server.url, *flags) as exporter:
        exporter.wait_for(lambda metrics: metrics.values("window_span_seconds"))
        yield exporter


class TestMetrics:
    @pytest.mark.parametrize("path", ["/metrics", "/api/v1/snapshot"])
    @pytest.mark.parametrize(
        ("accepts", "is_packed"),
        [
            ("gzip", True),
            ("GZIP", True),
            ("gzip;q=0.5, identity;q=1", True),
            ("br , gzip ;q=1.0", True),
            ("identity;q=0, *;q=0.1", True),
            ("gzip;q=0", False),
            ("gzip; q=0.000", False),
            ("identity", False),
            ("*;q=0", False),
            ("gzip;q=0, *", False),
            ("xgzipx", False),
            (";;, ,=", False),
            ("br, deflate", False),
            ("gzip;q=often", False),
        ],
    )
    def test_gzip(
        self, exporter: RunningExporter, path: str, accepts: str, is_packed: bool
    ) -> None:
        """By RFC 9110 (12.5.3): a weight of 0 refuses it, and `*` stands for what is
        not named.
        """
        response = exporter.get(path, Accept_Encoding=accepts)
        assert (response.headers.get("content-encoding") == "gzip") is is_packed
        assert response.body.startswith(b"\x1f\x8b") is is_packed

    def test_a_scrape_sends_no_request_to_the_server(
        self, exporter: RunningExporter, server: FaultyServer
    ) -> None:
        """Only polls reach the server, of which one comes in each second."""
        began = time.monotonic()
        polls = len(server.polls())
        for _ in range(40):
            exporter.get("/metrics")
        seconds = time.monotonic() - began
        assert len(server.polls()) <= polls + seconds + 2

    def test_own_metrics(self, exporter: RunningExporter, server: FaultyServer) -> None:
        """The process's own metrics are there, unless they were switched off."""
        assert "process_resident_memory_bytes" in exporter.metrics().samples
        with running_exporter(
            "--vllm.url", server.url, "--web.disable-exporter-metrics", "true"
        ) as without:
            text = without.get("/metrics").text

        assert re.findall(r"^(?!#|vllm_specdec_).+", text, re.MULTILINE) == []


#: The windows of the exporter, by default.
BOTH = ["30s", "5m"]


def test_who_reads_gets_reasons() -> None:
    """Which a poll does not make: page and snapshot ask for them."""
    flags = ("--poll.interval", "1s", "--poll.timeout", "900ms")
    with (
        FaultyServer(replay(start=40)) as server,
        running_exporter("--vllm.url", server.url, *flags) as exporter,
    ):

        def reasons() -> list[str]:
            [target] = exporter.snapshot()["targets"]
            return [
                reason
                for engine in target["engines"]
                for reason in engine["quality"]["reasons"]
            ]

        assert eventually(reasons)
        page = html.unescape(exporter.get("/").text)
        assert any(reason[:12] in page for reason in reasons())


class TestSnapshot:
    def test_is_what_its_schema_says(self, exporter: RunningExporter) -> None:
        """It is JSON that nobody may keep, and holds the values of /metrics."""
        answer = exporter.get("/api/v1/snapshot")
        document = json.loads(answer.body)
        jsonschema.Draft202012Validator.check_schema(snapshot.schema())
        jsonschema.validate(
            document, snapshot.schema(), cls=jsonschema.Draft202012Validator
        )

        assert answer.headers["content-type"].partition(";")[0] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        assert document["version"] == __version__
        first, engine = document["targets"][0]["engines"]
        metrics = exporter.metrics()
        assert first["engine"] == "0"
        assert engine["engine"] == "1"
        assert engine["counters"]["drafts"] == metrics.value("drafts_total", engine="1")
        assert engine["counters"]["accepted_tokens_per_position"] == list(
            metrics.values("accepted_tokens_per_position_total", engine="1").values()
        )
        assert [engine["activity"]["state"]] == metrics.one_hot("activity", engine="1")
        assert engine["num_speculative_tokens"] == metrics.value(
            "num_speculative_tokens", engine="1"
        )

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("", {"0": BOTH, "1": BOTH}),
            ("?engine=1", {"1": BOTH}),
            ("?engine=9", {}),
            ("?model_name=tiny-llama", {"0": BOTH, "1": BOTH}),
            ("?model_name=other", {}),
            ("?window=30s", {"0": ["30s"], "1": ["30s"]}),
            ("?model_name=tiny-llama&engine=0&window=5m", {"0": ["5m"]}),
            ("?metric=acceptance_ratio", {"0": BOTH, "1": BOTH}),
            ("?metric=drafts_total", {"0": [], "1": []}),
        ],
    )
    def test_filters(
        self, exporter: RunningExporter, query: str, expected: dict[str, list[str]]
    ) -> None:
        """A filter keeps what it names; a label that does not exist is not an error."""
        [target] = exporter.snapshot(query)["targets"]
        windows = {}
        for each in target["engines"]:
            windows[each["engine"]] = [window["window"] for window in each["windows"]]
        assert windows == expected

    @pytest.mark.parametrize("name", ["name", "full_name"])
    def test_every_metric(self, exporter: RunningExporter, name: str) -> None:
        """Every metric is a valid filter, with or without the prefix."""
        names = ",".join(getattr(row, name) for row in METRICS)
        assert exporter.snapshot(f"?metric={names}")["targets"][0]["up"]

    @pytest.mark.parametrize(
        ("query", "says"),
        [
            ("?metrics=up", ["metrics", "model_name, engine, window, metric"]),
            ("?metric=nonsense", ["nonsense", "acceptance_ratio", "up"]),
            ("?metric=up,nonsense", ["nonsense", "acceptance_ratio"]),
            ("?window=1h", ["1h", "30s, 5m"]),
            ("?engine=0&engine=1", ["engine", "twice"]),
            ("?%0a=1", ["allowed"]),
        ],
    )
    def test_bad_filters(
        self, exporter: RunningExporter, query: str, says: list[str]
    ) -> None:
        """A filter that cannot be applied is refused with what is allowed."""
        refused = exporter.get(f"/api/v1/snapshot{query}")
        assert refused.status == 400
        error = json.loads(refused.body)["error"]
        assert [word for word in says if word not in error] == []

    def test_metrics_of_a_judgement(self) -> None:
        """Only what was asked for: a judgement with its reasons, a field of an
        estimate, all of a speedup.
        """
        page = page_of(target(engine()))

        def engine_with(**query: str) -> dict[str, Any]:
            body = snapshot.encode(page, snapshot.parse_filter(query.items(), BOTH))
            [document] = json.loads(body)["targets"][0]["engines"]
            return document

        full_answer = engine_with()
        for metric, name in (
            ("payoff", "payoff"),
            ("recommendation", "advice"),
            ("recommended_num_speculative_tokens", "advice"),
        ):
            identity = {
                "model_name": full_answer["model_name"],
                "engine": full_answer["engine"],
            }
            assert engine_with(metric=metric) == {
                **identity,
                "windows": [],
                name: full_answer[name],
            }, metric
        [full] = engine_with(window="5m")["windows"]
        for metric in ("break_even_acceptance_length", "break_even_acceptance_ratio"):
            estimate = {metric: full["estimate"][metric]}
            assert engine_with(metric=metric, window="5m")["windows"] == [
                {"window": "5m", "estimate": estimate}
            ], metric
        [window] = engine_with(metric="estimated_speedup", window="5m")["windows"]
        assert set(window) == {"window", "estimate"}
        assert window["estimate"]["speedup"] == full["estimate"]["speedup"]


class TestGetMetrics:
    def test_get_metrics_returns_the_decoded_objects(
        self, exporter: RunningExporter
    ) -> None:
        """`get_metrics()` returns the typed objects that the JSON decodes to."""
        metrics = ["drafts_total", "activity", "acceptance_ratio"]
        path = f"/api/v1/snapshot?metric={','.join(metrics)}"

        # The two differ where the exporter polled in between.
        def same() -> ExporterResult | None:
            result = get_metrics(exporter.url, metric=metrics)
            body = exporter.get(path).body
            if snapshot.decode(body).targets == result.targets:
                return result
            return None

        result = eventually(same)
        [target] = result.targets
        assert [engine.engine for engine in target.engines] == ["0", "1"]
        assert target.engines[0].counters.drafts == 1022

    def test_filters(self, exporter: RunningExporter) -> None:
        """Filters and headers are sent."""
        with FaultyServer(
            answer(exporter.get("/api/v1/snapshot?engine=1&window=5m").body)
        ) as proxy:
            filters = {"model_name": "tiny-llama", "engine": "1", "window": "5m"}
            result = get_metrics(
                proxy.url + "/", headers={"Authorization": "Bearer x"}, **filters
            )
            assert proxy.requests[0].headers["authorization"] == "Bearer x"
            assert proxy.requests[0].path == f"/api/v1/snapshot?{urlencode(filters)}"

        [engine] = result.targets[0].engines
        assert engine.model_name == "tiny-llama"
        assert engine.engine == "1"
        assert [window.window for window in engine.windows] == ["5m"]

    def test_not_running(self) -> None:
        """An exporter that does not run is an error that says so."""
        with pytest.raises(
            SnapshotError, match=r"http://127\.0\.0\.1:1 cannot be reached: .*refused"
        ):
            get_metrics("http://127.0.0.1:1")

    @pytest.mark.parametrize(
        "url",
        ["127.0.0.1:9850", "file:///etc", "http://127.0.0.1:port", "http://[::1"],
    )
    def test_what_is_no_address(self, url: str) -> None:
        with pytest.raises(SnapshotError):
            get_metrics(url)

    @pytest.mark.parametrize(
        "behaviour",
        [
            answer(b"[]"),
            answer(b"{}"),
            answer(b'{"version": 1, "timestamp_seconds": "now"}'),
            answer(b"\xff"),
            answer(b""),
            status("404 Not Found"),
            raw(b"SSH-2.0-OpenSSH\r\n"),
            raw(reset=True),
            raw(head(Content_Length=100) + b'{"version"'),
            raw(head(Transfer_Encoding="chunked") + b"xyz\r\n"),
            hang(head(Content_Length=100)),
        ],
        ids=itertools.count(),
    )
    def test_no_exporter(self, behaviour: Behaviour) -> None:
        """Whatever else listens there, the error is a `SnapshotError` that names the
        address.
        """
        with (
            FaultyServer(behaviour) as server,
            pytest.raises(SnapshotError, match=re.escape(server.url)),
        ):
            get_metrics(server.url, timeout=0.5)


SETTINGS = {
    "vllm": {
        "url": ["http://user:hunter2@127.0.0.1:1", "http://127.0.0.1:2"],
        "header": {"Authorization": "Bearer hunter3", "X-Tenant": "hunter4"},
    },
    "poll": {"interval": "10s"},
    "window": ["1m", "10m"],
    "threshold": {"minimum_drafts": 50, "poor_acceptance_ratio": 0.03},
    "spec": {"config": {"method": "ngram", "num_speculative_tokens": 4}},
    "web": {"listen_address": "127.0.0.1:0"},
    "log": {"format": "json"},
}


def test_config_round_trip() -> None:
    """The configuration in force is YAML without secrets, and valid as a file with the
    same meaning.
    """
    with running_exporter(config=SETTINGS, fast=False) as exporter:
        shown = exporter.get("/config")
        threshold = exporter.metrics().values("threshold")

    assert shown.headers["content-type"].startswith("application/yaml")
    assert shown.headers["cache-control"] == "no-store"
    assert "hunter" not in shown.text
    document = yaml.safe_load(shown.text)
    assert document["vllm"]["url"] == [
        "http://<secret>@127.0.0.1:1",
        "http://127.0.0.1:2",
    ]
    assert document["vllm"]["header"] == [
        "Authorization: <secret>",
        "X-Tenant: <secret>",
    ]
    assert document["window"] == ["1m", "10m"]
    document["vllm"] |= {
        "url": SETTINGS["vllm"]["url"],
        "header": SETTINGS["vllm"]["header"],
    }
    with running_exporter(config=document, fast=False) as again:
        assert again.get("/config").text == shown.text
        assert again.metrics().values("threshold") == threshold


def test_paths_and_methods(exporter: RunningExporter) -> None:
    """These paths exist, and no others; those to read take no other method.

    The page may load nothing.
    """
    tells = ("/", "/metrics", "/-/healthy", "/-/ready", "/config", "/api/v1/snapshot")
    missing = ("/metrics/", "/favicon.ico", "/api/v1", "/../etc/passwd", "//")
    expected = {
        **dict.fromkeys(tells, 200),
        "/-/reload": 405,
        **dict.fromkeys(missing, 404),
    }

    assert {path: exporter.get(path).status for path in expected} == expected
    for path in tells:
        refused = exporter.post(path)
        assert refused.status == 405, path
        assert "GET" in refused.headers["allow"], path
    assert exporter.post("/api/v1/requests").status == 404, "no token for pushes"
    page = exporter.get("/")
    assert page.headers["server"] == "vllm-specdec-exporter", "and no versions"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert page.headers["x-content-type-options"] == "nosniff"


def test_no_web_page_reloads_it(exporter: RunningExporter) -> None:
    """A browser names the page that a request comes from."""
    refused = request(f"{exporter.url}/-/reload", "POST", Origin="http://evil.example")
    assert refused.status == 403
    assert refused.text == "requests from web pages are rejected\n"


# --- /metrics in pieces: the same bytes as in one, and others have their turn meanwhile


RESULT = run(next(case for case in CASES if case.name == "ngram-requests"))


async def scraped(
    result: ExporterResult, accept: str, query: str = "", encoding: str = ""
) -> tuple[Any, bytes]:
    """The headers and the body of a scrape."""
    headers = {"Accept": accept, "Accept-Encoding": encoding}
    request = make_mocked_request("GET", f"/metrics{query}", headers)
    written = []

    async def write(piece: bytes) -> None:
        written.append(piece)

    response = await make_handler(lambda: result, Texts(), process_metrics=True)(
        request
    )
    response.write = write
    await response.prepare(request)
    await response.write_eof()
    assert response.content_length == sum(map(len, written))
    return response.headers, b"".join(written)


@pytest.mark.parametrize("accept", ACCEPT.values(), ids=ACCEPT)
async def test_the_pieces_of_a_scrape_are_the_whole_text(accept: str) -> None:
    """The pieces are the text of the result and of the process, with all families or
    some, packed or not.
    """
    _, content_type = choose_encoder(accept)
    open_metrics = "openmetrics" in content_type
    names = ["vllm_specdec_up", "vllm_specdec_accepted_tokens_per_draft_count"]
    end = b"# EOF\n" if open_metrics else b""

    headers, text = await scraped(RESULT, accept)
    assert text.startswith(
        "".join(metrics_text(RESULT, open_metrics=open_metrics)).encode()
    )
    assert b"\nprocess_cpu_seconds_total " in text
    assert text.endswith(end)
    assert headers["Content-Type"] == content_type
    _, packed = await scraped(RESULT, accept, encoding="gzip, deflate")
    assert gzip.decompress(packed).startswith(text.partition(b"# HELP process_")[0])
    _, some = await scraped(RESULT, accept, f"?name[]={names[0]}&name[]={names[1]}")
    lines = re.findall(rf"^(?:{'|'.join(names)})[{{ ].*".encode(), text, re.MULTILINE)
    assert len(lines) == 2
    assert re.findall(rb"^[^#\n].*", some, re.MULTILINE) == lines


async def test_an_unknown_format_version_gets_the_usual_text() -> None:
    """Whoever asks for one gets what everybody understands."""
    for kind in ("text/plain", "application/openmetrics-text"):
        headers, _ = await scraped(RESULT, f"{kind};version=x")
        assert headers["Content-Type"].startswith("text/plain"), kind


async def test_a_long_scrape_does_not_block_the_event_loop() -> None:
    """A scrape that takes long does not stop the loop for all that time."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    # 300 targets: some megabytes of text, which take far longer than one turn
    task = asyncio.create_task(others())
    _, body = await scraped(replace(RESULT, targets=RESULT.targets * 300), "text/plain")
    task.cancel()
    assert turns >= len(body) // 100_000 > 20
