"""`/metrics` in protobuf: what a scraper gets that asks for it, and what real Prometheus servers store."""

import asyncio
import contextlib
import gzip
import re
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from support.closing import clean_up
from support.exporter import RunningExporter, running_exporter
from support.faulty_server import FaultyServer, answer, capture
from support.native_buckets import bound_of
from support.observed import observed
from support.ports import free_port
from support.prometheus import PrometheusServer, labels_of
from support.protobuf_families import Series, decode, samples, series
from vllm_specdec_exporter.exposition.histogram import ZERO_THRESHOLD, index_of
from vllm_specdec_exporter.measures.measures import Distribution
from vllm_specdec_exporter.publish import collector
from vllm_specdec_exporter.serve.endpoints import make_negotiating_handler

PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
NATIVE = ("--enable-feature=native-histograms",)
#: What Prometheus sends with native histograms, by its major version.
PROMETHEUS = {
    2: f"{PROTOBUF},application/openmetrics-text;version=1.0.0;q=0.8,"
    "application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    3: f"{PROTOBUF};q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
}


@pytest.fixture(scope="module")
def exporter() -> Iterator[RunningExporter]:
    """An exporter of two engines whose counters stand still."""
    with FaultyServer(answer(capture("dp2"))) as server:
        server.version = answer(b'{"version": "0.32.0"}')
        flags = ("--vllm.url", server.url, "--poll.interval", "1s", "--poll.timeout", "900ms")
        with running_exporter(*flags) as exporter:
            exporter.wait_for(lambda metrics: metrics.values("window_span_seconds"))
            yield exporter


def steady(found: dict[Series, float]) -> dict[Series, float]:
    """The series that do not change from one scrape to the next."""
    changing = r"process_|python_|.*(span_seconds|duration_seconds|success_timestamp)"
    return {key: value for key, value in found.items() if not re.match(changing, key[0])}


# --- the endpoint


def test_it_says_the_same_as_the_text(exporter: RunningExporter) -> None:
    """Also compressed, for who takes gzip; who prefers text gets text."""
    expected = samples(parse_classic(exporter.get("/metrics").text))
    for accept in (PROTOBUF, *PROMETHEUS.values()):
        plain = exporter.get("/metrics", Accept=accept)
        packed = exporter.get("/metrics", Accept=accept, Accept_Encoding="gzip")

        assert plain.status == 200
        assert plain.headers["content-type"].replace(" ", "") == PROTOBUF
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        for body in (plain.body, gzip.decompress(packed.body)):
            found = series(decode(body))
            assert found.keys() == expected.keys()
            assert steady(found) == steady(expected)
            assert len(steady(found)) > 100
            assert any(name == "process_cpu_seconds_total" for name, _ in found)

    openmetrics = "application/openmetrics-text"
    classic = "text/plain; version=0.0.4; charset=utf-8"
    for accept, content_type in (
        (f"{PROTOBUF};q=0.4,text/plain;version=0.0.4", classic),
        (PROTOBUF.replace("delimited", "text"), classic),
        (
            f"{PROTOBUF};q=0.4,{openmetrics};version=1.0.0;q=0.5",
            f"{openmetrics}; version=1.0.0; charset=utf-8; escaping=underscores",
        ),
    ):
        text = exporter.get("/metrics", Accept=accept)
        assert text.headers["content-type"] == content_type
        parse = parse_classic if content_type == classic else parse_openmetrics
        assert steady(samples(parse(text.text))) == steady(expected)


def test_picked_samples_come_as_text(exporter: RunningExporter) -> None:
    """A message holds a whole histogram, and would tell a count of 0 where only the sum was asked for."""
    name = "vllm_specdec_accepted_tokens_per_draft_sum"
    found = exporter.get(f"/metrics?name[]={name}", Accept=PROTOBUF)

    assert found.headers["content-type"].startswith("text/plain")
    assert {name for name, _ in samples(parse_classic(found.text))} == {name}


def test_an_exporter_that_stands_by_says_the_same_in_both() -> None:
    address = f"127.0.0.1:{free_port()}"
    wrong = ("--startup.on-error", "wait", "--poll.interval", "0s")
    with running_exporter("--web.listen-address", address, *wrong, fast=False) as exporter:
        text = exporter.get("/metrics")
        protobuf = exporter.get("/metrics", Accept=PROTOBUF)

    found = series(decode(protobuf.body))
    assert found == samples(parse_classic(text.text))
    (successful,) = [
        value for (name, _), value in found.items() if name == "vllm_specdec_config_last_reload_successful"
    ]
    assert successful == 0


# --- real Prometheus servers


@dataclass
class Requests:
    """The metrics of some requests that were observed so far."""

    ratios: list[float] = field(default_factory=list)

    def registry(self, *, native: bool) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(_Collector(self, native))
        return registry


@dataclass(frozen=True)
class _Collector:
    requests: Requests
    native: bool

    __hash__ = object.__hash__

    def collect(self) -> Iterator[Metric]:
        ratios = HistogramMetricFamily("ratio", "By request.")
        collector.add_histogram(
            ratios, (("model_name", "größer"),), observed(self.requests.ratios), self.native
        )
        collector.add_histogram(ratios, (("model_name", "idle"),), observed([]), self.native)
        yield ratios
        accepted = HistogramMetricFamily("accepted", "By draft.")
        collector.add_histogram(accepted, (), Distribution((3.0, 7.0, 9.0), 9.0, 8.0), self.native)
        yield accepted


@contextlib.contextmanager
def serving(handler: Handler) -> Iterator[str]:
    """Serve `/metrics` in a thread of its own, and yield the address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Coroutine[None, None, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(10)

    async def begin() -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/metrics", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = run(begin())
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        run(clean_up(runner))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@dataclass(frozen=True)
class Pair:
    """Two servers that scrape the same: one takes native histograms, the other does not know them."""

    requests: Requests
    native: PrometheusServer
    plain: PrometheusServer


@pytest.fixture(scope="module")
def pair(exporter: RunningExporter) -> Iterator[Pair]:
    requests = Requests([0.0, *[0.9] * 9])
    with contextlib.ExitStack() as stack:
        handler = make_negotiating_handler(requests.registry(native=False), requests.registry(native=True))
        scrape = {
            "requests": stack.enter_context(serving(handler)),
            "exporter": exporter.url.removeprefix("http://"),
        }
        native = stack.enter_context(PrometheusServer(scrape, interval="500ms", flags=NATIVE))
        plain = stack.enter_context(PrometheusServer(scrape, interval="500ms"))
        for server in (native, plain):
            server.wait_for("count(up == 1) == 2")
        yield Pair(requests, native, plain)


#: The one series of requests.
RATIO = 'ratio{model_name="größer"}'


def enclosing(value: float) -> tuple[float, float]:
    """The bounds of the native bucket that holds a value."""
    index = index_of(value)
    assert index is not None
    return bound_of(index - 1), bound_of(index)


def test_native_histograms_are_stored_as_observed(pair: Pair) -> None:
    """Count, sum and quantiles, over all that was observed and over what was observed since."""
    assert pair.native.value(f"histogram_count({RATIO})") == 10
    assert pair.native.value(f"histogram_sum({RATIO})") == pytest.approx(8.1)
    lower, upper = enclosing(0.9)
    assert lower <= (pair.native.value(f"histogram_quantile(0.5, {RATIO})") or 0) <= upper
    assert pair.native.value(f"histogram_quantile(0.05, {RATIO})") <= ZERO_THRESHOLD

    pair.requests.ratios += [0.3] * 90 + [0.01] * 10
    pair.native.wait_for(f"histogram_count({RATIO}) == 110")

    for quantile, value in ((0.05, 0.01), (0.5, 0.3), (0.99, 0.3)):
        lower, upper = enclosing(value)
        found = pair.native.value(f"histogram_quantile({quantile}, rate({RATIO}[1m]))")
        assert found is not None
        assert lower <= found <= upper, quantile


def test_what_is_stored_of_histograms(pair: Pair) -> None:
    """Classic ones as ever; native ones without classic series, or by a plain server as classic ones."""
    assert pair.native.value('histogram_count(ratio{model_name="idle"})') == 0
    for server in (pair.native, pair.plain):
        buckets = server.query("accepted_bucket")
        assert {next(labels_of(key, "le")): value for key, value in buckets.items()} == {
            "0.0": 3.0,
            "1.0": 7.0,
            "2.0": 9.0,
            "+Inf": 9.0,
        }
        assert (server.value("accepted_count"), server.value("accepted_sum")) == (9.0, 8.0)
    assert pair.native.query('{__name__=~"ratio_.+"}') == {}

    assert pair.plain.query("ratio") == {}
    bounds = {next(labels_of(key, "le")) for key in pair.plain.query("ratio_bucket")}
    assert bounds == {"0.05", "0.5", "1.0", "30.0", "+Inf"}
    difference = pair.plain.query('ratio_count - ignoring(le) ratio_bucket{le="+Inf"}')
    assert list(difference.values()) == [0, 0]
    assert (pair.plain.value('ratio_count{model_name="größer"}') or 0) >= 10
    assert pair.plain.value('ratio_count{model_name="idle"}') == 0


def test_both_servers_store_the_same_of_the_exporter(pair: Pair) -> None:
    """Labels, types and help texts do not depend on the format: whoever switches it on keeps the history."""
    ours = '{__name__=~"vllm_specdec_.+|process_.+|python_.+",job="exporter"}'
    by_text, by_protobuf = pair.plain.query(ours), pair.native.query(ours)

    assert by_protobuf.keys() == by_text.keys()
    assert len(by_text) > 100
    drafts = "vllm_specdec_drafts_total"
    assert pair.native.query(drafts) == pair.plain.query(drafts)

    known, plain = (server.api("metadata") for server in (pair.native, pair.plain))
    # OpenMetrics, which the plain server reads, names a family of counters without the ending.
    names = {name: name for name in plain} | {f"{name}_total": name for name in plain}
    families = [name for name in known if name.startswith("vllm_specdec_")]
    assert len(families) > 25
    assert [name for name in families if known[name] != plain[names[name]]] == []
