"""The HTTP endpoints of a running exporter, and `get_metrics()` against it."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import jsonschema
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from support.exporter import RunningExporter, running_exporter
from support.faulty_server import FaultyServer, answer, capture, hang, head, raw, replay, status
from support.programs import eventually
from vllm_specdec_exporter import SnapshotError, __version__, get_metrics
from vllm_specdec_exporter.publish import snapshot
from vllm_specdec_exporter.publish.metrics import METRICS
from vllm_specdec_exporter.publish.status_page import CONTENT_SECURITY_POLICY


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    """Two engines of one server whose counters stand still, so that all publishers see the same values."""
    with FaultyServer(answer(capture("dp2"))) as server:
        server.version = answer(b'{"version": "0.32.0"}')
        yield server


@pytest.fixture(scope="module")
def exporter(server: FaultyServer) -> Iterator[RunningExporter]:
    """An exporter that has published all its windows, and then polls no more."""
    spec = json.dumps({"method": "ngram", "num_speculative_tokens": 3})
    with running_exporter(
        "--vllm.url", server.url, "--spec.config", spec, "--poll.interval", "1s", "--poll.timeout", "900ms"
    ) as exporter:
        exporter.wait_for(lambda metrics: metrics.values("window_span_seconds"))
        yield exporter


class TestMetrics:
    def test_gzip(self, exporter: RunningExporter) -> None:
        """By RFC 9110 (12.5.3): a weight of 0 refuses it, and `*` stands for what is not named."""
        takes = ("gzip", "GZIP", "gzip;q=0.5, identity;q=1", "br , gzip ;q=1.0", "identity;q=0, *;q=0.1")
        refuses = ("gzip;q=0", "gzip; q=0.000", "identity", "*;q=0", "gzip;q=0, *", "xgzipx", ";;, ,=")
        wrong = []
        for path in ("/metrics", "/api/v1/snapshot"):
            for accepts in (*takes, *refuses, "br, deflate", "gzip;q=often"):
                found = exporter.get(path, Accept_Encoding=accepts)
                told = found.headers.get("content-encoding") == "gzip"
                if {told, found.body.startswith(b"\x1f\x8b")} != {accepts in takes}:
                    wrong.append(f"{path} {accepts}")
        assert wrong == []

    def test_nobody_is_asked_for_a_scrape(self, exporter: RunningExporter, server: FaultyServer) -> None:
        """Only polls reach the server, of which three at most come in meanwhile."""
        before = len(server.polls())
        for _ in range(20):
            exporter.get("/metrics")
        assert len(server.polls()) <= before + 3

    def test_own_metrics(self, exporter: RunningExporter, server: FaultyServer) -> None:
        """The process's own metrics are there, unless they were switched off."""
        assert "process_resident_memory_bytes" in exporter.metrics().samples
        with running_exporter("--vllm.url", server.url, "--web.disable-exporter-metrics", "true") as without:
            names = {family.name for family in parse_classic(without.get("/metrics").text)}

        assert {name for name in names if not name.startswith("vllm_specdec_")} == set()


class TestSnapshot:
    def test_is_what_its_schema_says(self, exporter: RunningExporter) -> None:
        """It is JSON that nobody may keep, and holds the values of /metrics."""
        answer = exporter.get("/api/v1/snapshot")
        document = json.loads(answer.body)
        jsonschema.Draft202012Validator.check_schema(snapshot.schema())
        jsonschema.validate(document, snapshot.schema(), cls=jsonschema.Draft202012Validator)

        assert answer.headers["content-type"].partition(";")[0] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        assert document["version"] == __version__
        first, engine = document["targets"][0]["engines"]
        metrics = exporter.metrics()
        assert (first["engine"], engine["engine"]) == ("0", "1")
        assert engine["counters"]["drafts"] == metrics.value("drafts_total", engine="1")
        assert engine["counters"]["accepted_tokens_per_position"] == list(
            metrics.values("accepted_tokens_per_position_total", engine="1").values()
        )
        assert [engine["activity"]["state"]] == metrics.one_hot("activity", engine="1")
        assert engine["num_speculative_tokens"] == metrics.value("num_speculative_tokens", engine="1")

    def test_filters(self, exporter: RunningExporter) -> None:
        """A filter keeps what it names; a label that does not exist is not an error."""
        both, wrong = ["30s", "5m"], []
        for query, expected in (
            ("", {"0": both, "1": both}),
            ("?engine=1", {"1": both}),
            ("?engine=9", {}),
            ("?model_name=tiny-llama", {"0": both, "1": both}),
            ("?model_name=other", {}),
            ("?window=30s", {"0": ["30s"], "1": ["30s"]}),
            ("?model_name=tiny-llama&engine=0&window=5m", {"0": ["5m"]}),
            ("?metric=acceptance_ratio", {"0": both, "1": both}),
            ("?metric=drafts_total", {"0": [], "1": []}),
        ):
            [target] = exporter.snapshot(query)["targets"]
            found = {e["engine"]: [window["window"] for window in e["windows"]] for e in target["engines"]}
            if found != expected:
                wrong.append(f"{query}: {found} instead of {expected}")
        assert wrong == []

    def test_every_metric(self, exporter: RunningExporter) -> None:
        """Every metric is a valid filter, with or without the prefix."""
        for names in (row.name for row in METRICS), (row.full_name for row in METRICS):
            assert exporter.snapshot(f"?metric={','.join(names)}")["targets"][0]["up"]

    def test_bad_filters(self, exporter: RunningExporter) -> None:
        """A filter that cannot be applied is refused with what is allowed."""
        wrong = []
        for query, says in (
            ("?metrics=up", ("metrics", "model_name, engine, window, metric")),
            ("?metric=nonsense", ("nonsense", "acceptance_ratio", "up")),
            ("?metric=up,nonsense", ("nonsense", "acceptance_ratio")),
            ("?window=1h", ("1h", "30s, 5m")),
            ("?engine=0&engine=1", ("engine", "twice")),
            ("?%0a=1", ("allowed",)),
        ):
            refused = exporter.get(f"/api/v1/snapshot{query}")
            if refused.status != 400 or not all(word in json.loads(refused.body)["error"] for word in says):
                wrong.append(f"{query}: {refused}")
        assert wrong == []


class TestGetMetrics:
    def test_same_objects(self, exporter: RunningExporter) -> None:
        """`get_metrics()` returns the typed objects that the JSON decodes to."""
        result = get_metrics(exporter.url, metric=["drafts_total", "activity", "acceptance_ratio"])
        body = exporter.get("/api/v1/snapshot?metric=drafts_total,activity,acceptance_ratio").body

        assert snapshot.decode(body).targets == result.targets
        [target] = result.targets
        assert [engine.engine for engine in target.engines] == ["0", "1"]
        assert target.engines[0].counters.drafts == 1022

    def test_filters(self, exporter: RunningExporter) -> None:
        """Filters and headers are sent."""
        with FaultyServer(answer(exporter.get("/api/v1/snapshot?engine=1&window=5m").body)) as proxy:
            filters = {"model_name": "tiny-llama", "engine": "1", "window": "5m"}
            result = get_metrics(proxy.url + "/", headers={"Authorization": "Bearer x"}, **filters)
            assert proxy.requests[0].headers["authorization"] == "Bearer x"
            assert proxy.requests[0].path == f"/api/v1/snapshot?{urlencode(filters)}"

        [engine] = result.targets[0].engines
        assert (engine.model_name, engine.engine) == ("tiny-llama", "1")
        assert [window.window for window in engine.windows] == ["5m"]

    def test_bad_filter(self, exporter: RunningExporter) -> None:
        """A filter that the exporter refuses is an error that says what is allowed."""
        with pytest.raises(SnapshotError, match=r"answered 400: unknown metric 'nonsense'; known: .*up"):
            get_metrics(exporter.url, metric=["nonsense"])

    def test_not_running(self) -> None:
        """An exporter that does not run is an error that says so; so is what is no address."""
        with pytest.raises(SnapshotError, match=r"http://127\.0\.0\.1:1 cannot be reached: .*refused"):
            get_metrics("http://127.0.0.1:1")
        for url in ("127.0.0.1:9850", "file:///etc", "http://127.0.0.1:port", "http://[::1"):
            with pytest.raises(SnapshotError):
                get_metrics(url)

    def test_no_exporter(self) -> None:
        """Whatever else listens there, the error is a `SnapshotError` that names the address."""
        with FaultyServer(hang()) as other:
            for other.behaviour in (
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
            ):
                with pytest.raises(SnapshotError, match=re.escape(other.url)):
                    get_metrics(other.url, timeout=0.5)


SETTINGS: dict[str, Any] = {
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
    """The configuration in force is YAML without secrets, and valid as a file with the same meaning."""
    with running_exporter(config=SETTINGS, fast=False) as exporter:
        shown = exporter.get("/config")
        threshold = exporter.metrics().values("threshold")

    assert shown.headers["content-type"].startswith("application/yaml")
    assert shown.headers["cache-control"] == "no-store"
    assert "hunter" not in shown.text
    document = yaml.safe_load(shown.text)
    assert document["vllm"]["url"] == ["http://<secret>@127.0.0.1:1", "http://127.0.0.1:2"]
    assert document["vllm"]["header"] == ["Authorization: <secret>", "X-Tenant: <secret>"]
    assert document["window"] == ["1m", "10m"]
    document["vllm"] |= {"url": SETTINGS["vllm"]["url"], "header": SETTINGS["vllm"]["header"]}
    with running_exporter(config=document, fast=False) as again:
        assert again.get("/config").text == shown.text
        assert again.metrics().values("threshold") == threshold


def test_paths_and_methods(exporter: RunningExporter) -> None:
    """These paths exist, and no others; those to read take no other method. The page may load nothing."""
    tells = ("/", "/metrics", "/-/healthy", "/-/ready", "/config", "/api/v1/snapshot")
    missing = ("/metrics/", "/favicon.ico", "/api/v1", "/../etc/passwd", "//")
    expected = {**dict.fromkeys(tells, 200), "/-/reload": 405, **dict.fromkeys(missing, 404)}

    assert {path: exporter.get(path).status for path in expected} == expected
    for path in tells:
        refused = exporter.post(path)
        assert (refused.status, "GET" in refused.headers["allow"]) == (405, True), path
    page = exporter.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert page.headers["x-content-type-options"] == "nosniff"


def test_a_dead_one_disturbs_nobody() -> None:
    """The servers have a `target` label without credentials, and are polled independently."""
    with FaultyServer(replay()) as well, FaultyServer(hang()) as dead:
        url = well.url.replace("//", "//user:hunter2@")
        with running_exporter("--vllm.url", url, "--vllm.url", dead.url) as exporter:
            exporter.wait_for(lambda metrics: metrics.values("window_span_seconds", target=well.url))
            spans = exporter.metrics().values("window_span_seconds", target=well.url)
            begin, polls = time.monotonic(), len(well.polls())
            eventually(lambda: len(well.polls()) >= polls + 10)
            later = exporter.wait_for(
                lambda m: m if len(m.errors(target=dead.url)) and m.value("up", target=well.url) else None
            )
            grown = later.values("window_span_seconds", target=well.url)

            assert later.value("up", target=dead.url) == 0
            assert {"timeout"} == set(later.errors(target=dead.url))
            assert set() == later.of_engines(target=dead.url)
            assert {"refused"} & set(later.errors(target=well.url)) == set()
            assert {well.url, dead.url} == {labels["target"] for labels in later.labels("up")}
            assert all("target" in labels for labels in later.labels("drafts_total"))
            assert all("target" not in labels for labels in later.labels("threshold"))
            # Ten polls at 500 ms, which the other server's timeouts of 480 ms do not delay.
            for key, span in grown.items():
                assert 4.5 <= span - spans[key] <= time.monotonic() - begin + 2.0
            everything = exporter.log() + exporter.get("/metrics").text + exporter.get("/config").text
            assert "hunter2" not in everything + exporter.get("/").text
            assert [well.url, dead.url] == [t["target"] for t in exporter.snapshot()["targets"]]
