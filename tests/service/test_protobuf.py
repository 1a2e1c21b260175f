"""The protobuf exposition over HTTP, and what real Prometheus servers store of it, with native histograms."""

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.test_push import TOKEN, of, post
from support.exporter import RunningExporter, running_exporter
from support.faulty_server import FaultyServer, answer, capture
from support.native_buckets import bound_of
from support.ports import free_port
from support.programs import eventually
from support.prometheus import PrometheusServer, labels_of
from support.protobuf_families import Series, decode, samples, series
from vllm_specdec_exporter.exposition.histogram import ZERO_THRESHOLD, index_of

PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
#: What Prometheus 2 and 3 send with native histograms.
WITH_NATIVE = {
    2: f"{PROTOBUF},application/openmetrics-text;version=1.0.0;q=0.8,"
    "application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    3: f"{PROTOBUF};q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
}
MODEL = "größer"
#: Pushed requests of the model: accepted of 100 drafted tokens each.
FIRST, LATER = [0, *[90] * 9], [*[30] * 90, *[1] * 10]


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningExporter]:
    """An exporter of two engines whose counters stand still, and of some requests."""
    token = tmp_path_factory.mktemp("push") / "token"
    token.write_text(TOKEN)
    with FaultyServer(answer(capture("dp2"))) as server:
        server.version = answer(b'{"version": "0.32.0"}')
        pace = ("--poll.interval", "1s", "--poll.timeout", "900ms")
        flags = ("--vllm.url", server.url, "--push.bearer-token-file", str(token), *pace)
        with running_exporter(*flags) as exporter:
            exporter.wait_for(lambda metrics: metrics.values("window_span_seconds"))
            push(exporter, FIRST)
            exporter.wait_for(lambda metrics: metrics.values("window_requests"))
            yield exporter


def push(exporter: RunningExporter, accepted: list[int]) -> None:
    """Tell of requests of which so many tokens of 100 were accepted."""
    records = (
        {"num_spec_steps": 50, "num_draft_tokens": 100, "num_accepted_draft_tokens": each}
        for each in accepted
    )
    items = ({"model": MODEL, "speculative_decoding": record} for record in records)
    assert post(exporter, of(*items)).status == 200


def by_text(text: str) -> dict[Series, float]:
    return samples(text_string_to_metric_families(text))


def steady(found: dict[Series, float]) -> dict[Series, float]:
    """The series that do not change from one scrape to the next."""
    changing = r"process_|python_|.*(span_seconds|duration_seconds|success_timestamp)"
    return {key: value for key, value in found.items() if not re.match(changing, key[0])}


@pytest.mark.parametrize("accept", WITH_NATIVE.values(), ids=WITH_NATIVE)
def test_it_says_the_same_as_the_text(exporter: RunningExporter, accept: str) -> None:
    """Also compressed, for who takes gzip."""
    expected = by_text(exporter.get("/metrics").text)
    plain = exporter.get("/metrics", Accept=accept)
    packed = exporter.get("/metrics", Accept=accept, Accept_Encoding="gzip")

    assert plain.headers["content-type"].replace(" ", "") == PROTOBUF
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    for body in (plain.body, gzip.decompress(packed.body)):
        found = series(decode(body))
        assert found.keys() == expected.keys()
        assert steady(found) == steady(expected)
        assert len(steady(found)) > 100


def test_picked_samples_come_as_text(exporter: RunningExporter) -> None:
    """A message holds a whole histogram, and would tell a count of 0 where only the sum was asked for."""
    name = "vllm_specdec_accepted_tokens_per_draft_sum"
    found = exporter.get(f"/metrics?name[]={name}", Accept=PROTOBUF)

    assert found.headers["content-type"].startswith("text/plain")
    assert {name for name, _ in by_text(found.text)} == {name}


def test_an_exporter_that_stands_by_says_the_same_in_both() -> None:
    address = f"127.0.0.1:{free_port()}"
    wrong = ("--startup.on-error", "wait", "--poll.interval", "0s")
    with running_exporter("--web.listen-address", address, *wrong, fast=False) as exporter:
        text = exporter.get("/metrics").text
        protobuf = exporter.get("/metrics", Accept=PROTOBUF).body

    assert series(decode(protobuf)) == by_text(text)
    assert by_text(text)["vllm_specdec_config_last_reload_successful", ()] == 0


# --- real Prometheus servers


@dataclass(frozen=True)
class Pair:
    """Two servers that scrape the same: one takes native histograms, the other does not know them."""

    native: PrometheusServer
    plain: PrometheusServer


@pytest.fixture(scope="module")
def pair(exporter: RunningExporter) -> Iterator[Pair]:
    scrape = {"exporter": exporter.address}
    with (
        PrometheusServer(scrape, flags=("--enable-feature=native-histograms",)) as native,
        PrometheusServer(scrape) as plain,
    ):
        for server in (native, plain):
            server.wait_for("up == 1")
        yield Pair(native, plain)


RATIO = f'vllm_specdec_request_acceptance_ratio{{model_name="{MODEL}"}}'


def enclosing(value: float) -> tuple[float, float]:
    """The bounds of the native bucket that holds a value."""
    index = index_of(value)
    assert index is not None
    return bound_of(index - 1), bound_of(index)


def test_native_histograms_are_stored_as_observed(exporter: RunningExporter, pair: Pair) -> None:
    """Count, sum and quantiles, over all that was observed and over what was observed since."""
    assert pair.native.value(f"histogram_count({RATIO})") == len(FIRST)
    assert pair.native.value(f"histogram_sum({RATIO})") == pytest.approx(sum(FIRST) / 100)
    lower, upper = enclosing(0.9)
    assert lower <= (pair.native.value(f"histogram_quantile(0.5, {RATIO})") or 0) <= upper
    assert pair.native.value(f"histogram_quantile(0.05, {RATIO})") <= ZERO_THRESHOLD

    push(exporter, LATER)
    pair.native.wait_for(f"histogram_count({RATIO}) == {len(FIRST + LATER)}")

    for quantile, value in ((0.05, 0.01), (0.5, 0.3), (0.99, 0.3)):
        lower, upper = enclosing(value)
        found = pair.native.value(f"histogram_quantile({quantile}, rate({RATIO}[1m]))")
        assert found is not None
        assert lower <= found <= upper, quantile


def test_what_is_stored_of_histograms(pair: Pair) -> None:
    """Native ones without classic series, or by a plain server as classic ones."""
    series = "vllm_specdec_request_acceptance_ratio_(bucket|count|sum)"
    assert pair.native.query(f'{{__name__=~"{series}"}}') == {}

    assert pair.plain.query(RATIO) == {}
    ratio = "vllm_specdec_request_acceptance_ratio"
    bounds = {next(labels_of(key, "le")) for key in pair.plain.query(f"{ratio}_bucket")}
    assert {"0.05", "0.5", "1.0", "+Inf"} <= bounds
    difference = pair.plain.query(f'{ratio}_count - ignoring(le) {ratio}_bucket{{le="+Inf"}}')
    assert list(difference.values()) == [0]
    assert pair.plain.value(f"{ratio}_count") >= len(FIRST)


def test_both_servers_store_the_same_of_the_rest(pair: Pair) -> None:
    """Labels, types and help texts do not depend on the format: whoever switches it on keeps the history."""
    native = "acceptance_ratio|accepted_tokens_per_draft|time_(to_first|per_output)_token_seconds"
    ours = (
        '{__name__=~"vllm_specdec_.+|process_.+|python_.+",'
        f'__name__!~"vllm_specdec_request_({native})(_bucket|_count|_sum)?"}}'
    )
    classic = '{__name__=~"vllm_specdec_drafts_total|vllm_specdec_accepted_tokens_per_draft_.+"}'

    def agree() -> bool:  # a scrape may be missing on a busy machine
        by_text, by_protobuf = pair.plain.query(ours), pair.native.query(ours)
        counts = pair.native.query(classic)
        same = len(counts) > 8 and counts == pair.plain.query(classic)
        return len(by_text) > 100 and by_protobuf.keys() == by_text.keys() and same

    eventually(agree)

    known, plain = (server.api("metadata") for server in (pair.native, pair.plain))
    # OpenMetrics, which the plain server reads, names a family of counters without the ending.
    names = {name: name for name in plain} | {f"{name}_total": name for name in plain}
    families = [name for name in known if name.startswith("vllm_specdec_")]
    assert len(families) > 25
    assert [name for name in families if known[name] != plain[names[name]]] == []
