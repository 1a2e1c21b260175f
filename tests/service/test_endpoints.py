"""The HTTP endpoints of a running exporter, and `get_metrics()` against it."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from support.exporter import running_exporter
from support.faulty_server import FaultyServer, answer, capture, hang, head, raw, replay, status
from support.programs import eventually
from vllm_specdec_exporter import SnapshotError, __version__, get_metrics
from vllm_specdec_exporter.publish import snapshot
from vllm_specdec_exporter.publish.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import Metric

    from support.exporter import RunningExporter


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


def _values(families: Iterable[Metric]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The samples that do not change from one scrape to the next."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        if family.name.startswith("vllm_specdec_")
        for sample in family.samples
        if not re.search(r"span_seconds|duration_seconds|success_timestamp", sample.name)
    }


class TestMetrics:
    def test_formats(self, exporter: RunningExporter) -> None:
        """The classic text and OpenMetrics both parse and hold the same values."""
        classic = exporter.get("/metrics")
        openmetrics = exporter.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")

        assert classic.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert openmetrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert openmetrics.text.endswith("# EOF\n")
        expected = _values(parse_classic(classic.text))
        assert expected == _values(parse_openmetrics(openmetrics.text))
        assert len(expected) > 100

    def test_gzip_is_for_whoever_takes_it(self, exporter: RunningExporter) -> None:
        """As RFC 9110 (12.5.3) has it: a weight of 0 is a no, and `*` is whatever is not named."""
        packed = exporter.get("/metrics", Accept_Encoding="gzip")
        text = gzip.decompress(packed.body).decode()
        assert _values(parse_classic(exporter.get("/metrics").text)) == _values(parse_classic(text))

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

    def test_names(self, exporter: RunningExporter) -> None:
        """`name[]` picks single metrics."""
        found = exporter.get("/metrics?name[]=vllm_specdec_up&name[]=vllm_specdec_drafts_total")
        families = list(parse_classic(found.text))

        assert sorted(family.name for family in families) == ["vllm_specdec_drafts", "vllm_specdec_up"]

    def test_identity(self, exporter: RunningExporter) -> None:
        """With one server, engines have their own labels and no `target`."""
        metrics = exporter.metrics()

        labels = metrics.labels("drafts_total")
        assert labels == [
            {"model_name": "tiny-llama", "engine": "0"},
            {"model_name": "tiny-llama", "engine": "1"},
        ]
        assert metrics.labels("up") == [{}]
        assert metrics.value("info", engine="0", method="ngram", upstream_version="0.32.0") == 1
        assert metrics.value("drafts_total", engine="0") == 1022

    def test_own_metrics(self, exporter: RunningExporter, server: FaultyServer) -> None:
        """The process's own metrics are there, unless they were switched off."""
        assert "process_resident_memory_bytes" in exporter.metrics().samples
        with running_exporter("--vllm.url", server.url, "--web.disable-exporter-metrics", "true") as without:
            names = {family.name for family in parse_classic(without.get("/metrics").text)}

        assert {name for name in names if not name.startswith("vllm_specdec_")} == set()

    def test_nobody_is_asked_for_a_scrape(self, exporter: RunningExporter, server: FaultyServer) -> None:
        """Scrapes do not reach the server behind."""
        before = len(server.polls())
        for _ in range(20):
            exporter.get("/metrics")

        # A poll a second: two at the most came in meanwhile.
        assert len(server.polls()) <= before + 3


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

    def test_metric(self, exporter: RunningExporter) -> None:
        """Metrics are named with or without the prefix, one by one or in a list; identities stay."""
        for query in (
            "?metric=vllm_specdec_drafts_total&metric=acceptance_ratio",
            "?metric=drafts_total,%20vllm_specdec_acceptance_ratio,",
        ):
            document = exporter.snapshot(query)
            [target] = document["targets"]
            engine = target["engines"][0]

            assert {"version", "timestamp_seconds", "targets"} == set(document)
            assert {"target", "up", "failure", "engines"} == set(target)
            assert {"model_name", "engine", "counters", "windows"} == set(engine)
            assert engine["counters"] == {"drafts": 1022}
            assert {"window", "acceptance_ratio"} == set(engine["windows"][0])

    def test_every_metric(self, exporter: RunningExporter) -> None:
        """Every metric can be asked for, and what comes decodes."""
        for row in METRICS:
            found = exporter.get(f"/api/v1/snapshot?metric={row.name}")
            assert found.status == 200, row.name
            assert snapshot.decode(found.body).targets[0].up, row.name

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
        """Filters are passed on."""
        result = get_metrics(exporter.url + "/", model_name="tiny-llama", engine="1", window="5m")

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
        for url in (
            "127.0.0.1:9850",
            "ftp://127.0.0.1",
            "file:///etc",
            "http://127.0.0.1:port",
            "http://[::1",
        ):
            with pytest.raises(SnapshotError):
                get_metrics(url)

    def test_no_exporter(self) -> None:
        """Whatever else listens there, the error is a `SnapshotError` that names the address."""
        with FaultyServer(hang()) as other:
            for other.behaviour in (
                answer(b"<html></html>", content_type="text/html"),
                answer(b"[]"),
                answer(b"{}"),
                answer(b'{"version": 1, "timestamp_seconds": "now"}'),
                answer(b"\xff"),
                answer(b""),
                status("404 Not Found"),
                status("500 Internal Server Error"),
                raw(b"SSH-2.0-OpenSSH\r\n"),
                raw(),
                raw(reset=True),
                raw(head(Content_Length=100) + b'{"version"'),
                raw(head(Transfer_Encoding="chunked") + b"xyz\r\n"),
                hang(),
                hang(head(Content_Length=100)),
            ):
                with pytest.raises(SnapshotError, match=re.escape(other.url)):
                    get_metrics(other.url, timeout=0.5)

    def test_headers(self, exporter: RunningExporter) -> None:
        """Headers are sent along."""
        with FaultyServer(answer(exporter.get("/api/v1/snapshot").body)) as proxy:
            result = get_metrics(proxy.url, headers={"Authorization": "Bearer x"})

            assert proxy.requests[0].headers["authorization"] == "Bearer x"
            assert len(result.targets[0].engines) == 2


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


class TestConfig:
    def test_shows_no_secret(self) -> None:
        """The configuration in force is shown as YAML, without passwords and header values."""
        with running_exporter(config=SETTINGS, fast=False) as exporter:
            shown = exporter.get("/config")

        assert shown.headers["content-type"].startswith("application/yaml")
        assert shown.headers["cache-control"] == "no-store"
        assert "hunter" not in shown.text
        document = yaml.safe_load(shown.text)
        assert document["vllm"]["url"] == ["http://<secret>@127.0.0.1:1", "http://127.0.0.1:2"]
        assert document["vllm"]["header"] == ["Authorization: <secret>", "X-Tenant: <secret>"]
        assert document["window"] == ["1m", "10m"]

    def test_round_trip(self) -> None:
        """What is shown is a configuration file that gives the same configuration."""
        settings = {**SETTINGS, "vllm": {"url": ["http://127.0.0.1:1"]}}
        with running_exporter(config=settings, fast=False) as exporter:
            shown = exporter.get("/config").text
            threshold = exporter.metrics().values("threshold")
        with running_exporter(config=shown, fast=False) as again:
            assert shown == again.get("/config").text
            assert threshold == again.metrics().values("threshold")


class TestRoutes:
    def test_paths_and_methods(self, exporter: RunningExporter) -> None:
        """These paths exist, and no others; what only tells something takes no other method."""
        tells = ("/", "/metrics", "/-/healthy", "/-/ready", "/config", "/api/v1/snapshot")
        missing = ("/metrics/", "/favicon.ico", "/api/v1", "/../etc/passwd", "//")
        expected = {**dict.fromkeys(tells, 200), "/-/reload": 405, **dict.fromkeys(missing, 404)}

        assert {path: exporter.get(path).status for path in expected} == expected
        for path in tells:
            refused = exporter.post(path)
            assert (refused.status, "GET" in refused.headers["allow"]) == (405, True), path

    def test_page(self, exporter: RunningExporter) -> None:
        """The status page is HTML that may neither run nor load anything."""
        page = exporter.get("/")

        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert "vllm_specdec" in page.text or "vllm-specdec" in page.text


class TestSeveralServers:
    def test_a_dead_one_disturbs_nobody(self) -> None:
        """The servers have a `target` label without credentials, and each its own beat."""
        with FaultyServer(replay()) as well, FaultyServer(hang()) as dead:
            url = well.url.replace("//", "//user:hunter2@")
            with running_exporter("--vllm.url", url, "--vllm.url", dead.url) as exporter:
                exporter.wait_for(lambda metrics: metrics.values("window_span_seconds", target=well.url))
                begin = len(well.polls())
                spans = exporter.metrics().values("window_span_seconds", target=well.url)
                eventually(lambda: len(well.polls()) >= begin + 10)
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
                # Ten polls at 500 ms: the beat is neither lost nor held up by 480 ms of waiting each.
                for key, span in grown.items():
                    assert 4.5 <= span - spans[key] <= 7.0
                everything = exporter.log() + exporter.get("/metrics").text + exporter.get("/config").text
                assert "hunter2" not in everything + exporter.get("/").text
                assert [well.url, dead.url] == [t["target"] for t in exporter.snapshot()["targets"]]
