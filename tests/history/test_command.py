"""The command against a real Prometheus, a real VictoriaMetrics, and servers that
refuse.
"""

import json
import re
import subprocess
import tracemalloc
from argparse import Namespace
from collections.abc import Iterator
from inspect import get_annotations
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dashboards import worlds_write
from docs.transcripts import missing, transcript_of
from history.api import WITHOUT_BUCKETS, api
from history.world import (
    ACCEPTED,
    BEGIN,
    DAY,
    Life,
    World,
    four,
    openmetrics,
    stored,
    truth,
)
from scaling.victoria import VictoriaMetrics
from support.commands import Outcome, run_here, run_in_terminal
from support.faulty_server import (
    Behaviour,
    FaultyServer,
    Peer,
    answer,
    hang,
    head,
    status,
)
from support.programs import find_program, process
from support.repository import text_of
from vllm_specdec_exporter.commands.history.configuration import Configuration
from vllm_specdec_exporter.commands.history.document import (
    FORMAT,
    HistoryDocument,
    ModelHistory,
    Summary,
)
from vllm_specdec_exporter.commands.history.matching import BinSpeedup
from vllm_specdec_exporter.commands.history.past import TimeGrid
from vllm_specdec_exporter.commands.history.reading import read_stored
from vllm_specdec_exporter.commands.history.series import PastScope
from vllm_specdec_exporter.commands.history.session import show
from vllm_specdec_exporter.commands.history.source import Prometheus, PrometheusError
from vllm_specdec_exporter.config.values import parse_target
from vllm_specdec_exporter.economics.baseline import decode
from vllm_specdec_exporter.economics.statistics import Interval
from vllm_specdec_exporter.upstream.connection import UpstreamConfig

SCRAPE = 60.0
#: Two replicas, scraped each minute: four configurations over 14 days.
WORLD = World(four(1, replicas=2).lives, seed=1, step=SCRAPE)
#: And an SGLang with two ranks, which has no K before it drafts.
SGLANG = World(
    [Life("s0:30000", 0, 3, 0), Life("s0:30000", 3, 6, 3)],
    seed=4,
    step=SCRAPE,
    model="qwen",
    sglang=True,
)
#: And two replicas on one node of Ray, of which only the positions of drafts would show
#: K.
ON_RAY = [Life("u0", 0, 1, 0), Life("u1", 0, 1, 0)]
ON_RAY += [Life("u0", 1, 2, 3), Life("u1", 1, 2, 3)]
RAY = World(ON_RAY, seed=5, step=SCRAPE, model="ray", ray=True)
#: And half a day of two replicas by federation, scraped each five minutes, more than
#: blocks would take.
FEDERATED = World(
    [Life(f"b{n}", 0, 1 / 2, 3 * n) for n in range(2)],
    6,
    step=300.0,
    model="brief",
    federated=True,
)
SINCE = ("--since", "2025-11-01")
AS_JSON = (*SINCE, "--json")
#: The token of another server, which must not be sent.
SECRET = {"VLLM_SPECDEC_EXPORTER_VLLM_BEARER_TOKEN_FILE": __file__}
LLAMA = (*SINCE, "--model-name", "llama")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a Prometheus with the past in blocks, and a limit of samples that makes
    queries be divided.
    """
    folder = tmp_path_factory.mktemp("past")
    with (folder / "past.txt").open("w") as file:
        openmetrics((WORLD, SGLANG, RAY, FEDERATED), file)
    promtool = [
        find_program("promtool", "prometheus"),
        "tsdb",
        "create-blocks-from",
        "openmetrics",
    ]
    subprocess.run(
        [*promtool, "-q", "--max-block-duration=744h", "past.txt", "data"],
        cwd=folder,
        check=True,
    )
    (folder / "prometheus.yml").write_text("{}")
    files = (
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
    )
    limits = ("--storage.tsdb.retention.time=100y", "--query.max-samples=5000")
    flags = (*files, *limits, "--web.listen-address={address}", "--log.level=warn")
    with process("prometheus", *flags, package="prometheus", ready="/-/ready") as url:
        yield url


def document(outcome: Outcome) -> dict[str, Any]:
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def models_of(url: str, *options: str) -> list[dict[str, Any]]:
    """Return what `history --json` has of each model of a server."""
    shown = run_here("history", url, *options, *AS_JSON)
    return document(shown)["models"]


def model_named(url: str, name: str) -> dict[str, Any]:
    (model,) = models_of(url, f"--model-name={name}")
    return model


def ks_of(model: dict[str, Any]) -> list[int | None]:
    configurations = (each["configuration"] for each in model["configurations"])
    return [shown["num_speculative_tokens"] for shown in configurations]


def check(model: dict[str, Any]) -> None:
    """Check all comparisons of a model against the truth."""
    ks = ks_of(model)
    pairs = [(ks[each["new"]], ks[each["old"]]) for each in model["comparisons"]]
    assert pairs == [(1, 0), (3, 0), (3, 1), (5, 0), (5, 3)]
    for pair, each in zip(pairs, model["comparisons"], strict=True):
        bins = [
            BinSpeedup(**{**b, "speedup": Interval(**b["speedup"])})
            for b in each["bins"]
        ]
        right = truth(bins, *pair)
        speedup = each["speedup"]
        assert speedup["low"] <= right <= speedup["high"], pair
        assert speedup["high"] / speedup["low"] < 1.3, pair


def counted(name: str, k: int) -> float:
    """What the replicas with this K counted in all."""
    lives = [life for life in WORLD.lives if life.k == k]
    return sum(WORLD.counts[life][name].sum() for life in lives)


def test_the_past_in_a_prometheus(prometheus: str) -> None:
    """Configurations with what the exporter shows of them, their traffic, and speedups
    near the truth.
    """
    result = document(run_here("history", prometheus, *AS_JSON))
    model = result["models"].pop(1)
    assert [each["name"] for each in (model, *result["models"])] == [
        "llama",
        "brief",
        "qwen",
        "ray",
    ]
    assert result["block_seconds"] == 3600
    check(model)
    changes = [each["other_changes"] for each in model["comparisons"]]
    cache = ["cache_dtype auto to fp8"]
    assert changes == [[], [], [], cache, cache]
    without, *drafting = model["configurations"]
    assert Configuration(**without["configuration"]) == Configuration(0, "", "0.32.0")
    for k, each in zip((0, 1, 3, 5), model["configurations"], strict=True):
        assert (each["periods"], each["replicas"]) == (1, 2), k
        seconds = each["last_seconds"] - each["first_seconds"]
        assert seconds == pytest.approx(3.5 * DAY, abs=600), k
        requests = counted("requests", k)
        assert each["requests"] == pytest.approx(requests, rel=0.02), k
    for k, each in zip((1, 3, 5), drafting, strict=True):
        shown = Configuration(**each["configuration"])
        assert shown == Configuration(k, "eagle3", "0.32.0")
        ratio = counted("accepted_tokens", k) / counted("draft_tokens", k)
        assert each["acceptance_ratio"] == pytest.approx(ratio, rel=1e-3), k
        length = each["mean_acceptance_length"]
        assert length == pytest.approx(1 + k * ratio, rel=1e-3), k


def test_the_past_of_sglang(prometheus: str) -> None:
    """K from its gauge, the accepted tokens from its other counters."""
    model = model_named(prometheus, "qwen")
    _, drafting = model["configurations"]
    assert ks_of(model) == [0, 3]
    assert drafting["mean_acceptance_length"] == pytest.approx(
        1 + sum(ACCEPTED[:3]), rel=0.01
    )
    assert drafting["acceptance_ratio"] == pytest.approx(
        sum(ACCEPTED[:3]) / 3, rel=0.01
    )
    assert model["comparisons"][0]["speedup"]["value"] == pytest.approx(2.2, abs=0.2)


def test_speculation_without_positions_on_one_node_of_ray(prometheus: str) -> None:
    """Its drafts show it, and replicas of one address are told apart."""
    shown = run_here("history", prometheus, "--model-name=ray", *AS_JSON)
    assert shown.code == 1
    (model,) = json.loads(shown.out)["models"]
    assert ks_of(model) == [0, None]
    assert [each["replicas"] for each in model["configurations"]] == [2, 2]
    finished = [RAY.counts[life]["requests"].sum() for life in ON_RAY]
    assert [each["requests"] for each in model["configurations"]] == pytest.approx(
        [sum(finished[:2]), sum(finished[2:])], rel=0.02
    )
    # Ray's sums of histograms are those of the middles of buckets.
    (comparison,) = model["comparisons"]
    assert comparison["speedup"] is None
    assert "of Ray Serve" in comparison["problem"]


def test_a_federated_half_day_with_few_samples(prometheus: str, tmp_path: Path) -> None:
    """Steps are long enough for samples that far apart, and what federation renames
    tells replicas apart.
    """
    brief = ("history", prometheus, *SINCE, "--model-name", "brief")
    model = model_named(prometheus, "brief")
    finished = [FEDERATED.counts[life]["requests"].sum() for life in FEDERATED.lives]
    assert ks_of(model) == [0, 3]
    assert [each["replicas"] for each in model["configurations"]] == [1, 1]
    assert [each["requests"] for each in model["configurations"]] == pytest.approx(
        finished, rel=0.2
    )
    assert model["comparisons"][0]["speedup"]["value"] == pytest.approx(2.4, abs=0.2)
    first, second = (
        "2025-11-03/2025-11-03T03:00Z",
        "2025-11-03T03:00Z/2025-11-03T06:00Z",
    )
    assert "(B against A)" in compared(prometheus, first, second, "--model=brief").out
    refused = run_here(*brief, "--out", str(tmp_path / "baseline.json"))
    assert refused.code == 1
    assert "not stored request_time_per_output_token_seconds_bucket" in refused.err


def test_the_report_in_a_terminal_with_baseline_and_plot(
    prometheus: str, tmp_path: Path
) -> None:
    """A line of progress, a sentence for each comparison, a baseline for the exporter
    and a picture.
    """
    baseline = tmp_path / "baseline.json"
    picture = tmp_path / "past.svg"
    files = (f"--out={baseline}", f"--plot={picture}")
    shown = run_in_terminal("history", prometheus, *LLAMA, *files)
    assert shown.code == 0
    assert "reading: query" in shown.out
    assert (
        "(K=3, eagle3, 0.32.0 against no speculation, 0.32.0): helped, 2."
        in " ".join(shown.out.split())
    )
    recorded = decode(baseline.read_bytes())
    assert all(
        len(bucket.blocks) > 2 for bucket in recorded.buckets if bucket.requests > 100
    )
    named = recorded.model_name, recorded.upstream_version, recorded.dialect
    assert named == ("llama", "0.32.0", "vllm-v1")
    for bucket in recorded.buckets[1:]:
        time = bucket.latencies.time_per_output_token
        load = bucket.requests_running
        # The prompt length is in between, the drift of the hours a few percent.
        assert time.mean == pytest.approx(0.0105 * (1 + load / 15), rel=0.15), load
        assert time.counts[1] == pytest.approx(0.5 * time.count), load
    svg = picture.read_text("utf-8")
    labels = ("K=5, eagle3, 0.32.0", "running", "% compared", "<dc:description")
    assert [text for text in labels if text not in svg] == []


def test_instances_and_matchers(prometheus: str) -> None:
    """Each instance has a history of its own; matchers are for servers, not for the
    exporter beside them.
    """
    result = models_of(prometheus, "--by=instance")
    places = (
        "brief node:9090 b0",
        "brief node:9090 b1",
        "llama r0:8000",
        "llama r1:8000",
        "qwen s0:30000",
    )
    assert [model["name"] for model in result] == [
        *places,
        "ray node:8080 u0",
        "ray node:8080 u1",
    ]
    for matchers in (
        'instance=~"r1.*", job="server"',
        ' {instance=~"r1.*", job="server"} ',
    ):
        only = models_of(prometheus, f"--match={matchers}")
        assert only[0]["configurations"] == result[3]["configurations"]


FIRST_HALF = "2025-11-03/2025-11-06T12:00Z"
SECOND_HALF = "2025-11-10T00:00Z/2025-11-13"


def compared(prometheus: str, a: str, b: str, *words: str) -> Outcome:
    times = (f"--prometheus.url={prometheus}", f"--a={a}", f"--b={b}")
    return run_here("compare", *times, *words)


@pytest.mark.parametrize(
    ("a", "b", "speedup"),
    [(FIRST_HALF, SECOND_HALF, 2.1), (SECOND_HALF, FIRST_HALF, 1 / 2.1)],
)
def test_compare_takes_two_times(
    prometheus: str, a: str, b: str, speedup: float
) -> None:
    """Whatever ran in them: B against A, also if A is the later one."""
    as_json = ("--model=llama", "--json")
    shown = compared(prometheus, a, b, *as_json)
    (model,) = document(shown)["models"]
    names = [each["configuration"]["name"] for each in model["configurations"]]
    assert names == ["A", "B"]
    (comparison,) = model["comparisons"]
    assert comparison["speedup"]["value"] == pytest.approx(speedup, rel=0.1)


def test_times_that_cannot_be_compared(prometheus: str) -> None:
    idle = compared(prometheus, FIRST_HALF, "2025-11-20/2025-11-21")
    assert idle.code == 1
    assert "nothing to compare: only A had traffic\n" in idle.out
    refused = compared(prometheus, "3d/2d", "60h")
    assert refused.code == 2
    assert "--a and --b overlap" in refused.err
    assert "REFERENCE and SIDE" in run_here("compare").err


@pytest.mark.full
def test_the_past_in_a_victoriametrics() -> None:
    """Its increases are not extrapolated, which changes no speedup."""
    with VictoriaMetrics("-retentionPeriod=100y") as server:
        worlds_write.push(server.url, WORLD.times, stored(WORLD), markers=False)
        server.api("labels")
        (model,) = models_of(server.url)
    check(model)


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        (
            answer(b"no org id", "401 Unauthorized"),
            "answered 401: no org id: not authorised: see --vllm.",
        ),
        (answer(b"<html>", "403 Forbidden"), "answered 403: not authorised"),
        (
            answer(b'{"message": "no token"}', "403 Forbidden"),
            '{"message": "no token"}: not authorised',
        ),
        (
            answer(b'{"status": "error", "error": "out of range"}'),
            "a Prometheus: out of range",
        ),
        (
            status("404 Not Found"),
            "no Prometheus API there; that of Mimir is under /prometheus",
        ),
        (
            answer(b'{"error": "no org id"}', "400 Bad Request"),
            "answered 400: no org id",
        ),
        (
            answer(b'{"error": "too long"}', "422 Unprocessable"),
            "answered 422: too long: a shorter --since",
        ),
        (
            answer(
                b'{"error": "cannot parse query: unparsed data left"}',
                "422 Unprocessable Entity",
            ),
            "unparsed data left: --match has matchers of PromQL",
        ),
        (hang(), "timeout: no complete response within 1 s: a longer --timeout"),
        (answer(b"<html>"), "not a response of a Prometheus"),
    ],
)
def test_a_server_that_refuses(behaviour: Any, message: str) -> None:
    with FaultyServer(behaviour) as server:
        header = ("--vllm.header", "X-Scope-OrgID: team", "--timeout", "1s")
        outcome = run_here("history", server.url, *header, **SECRET)
        assert (outcome.code, outcome.out) == (4, "")
        assert message in outcome.err
        assert server.requests[0].headers["x-scope-orgid"] == "team"
        assert "authorization" not in server.requests[0].headers


def test_the_help_names_no_variable() -> None:
    """None applies: those of --vllm.* are for vLLM, not for this server."""
    helped = run_here("history", "--help")
    assert "--vllm.bearer-token-file" in helped.out
    assert "VLLM_SPECDEC_EXPORTER_VLLM_" not in helped.out


def test_a_prometheus_without_vllm(prometheus: str) -> None:
    """What there is instead is named."""
    second = run_here("history", prometheus, *SINCE, "--model-name=other")
    assert (
        'no series of vLLM, Aphrodite or SGLang with {model_name="other"} in that time'
        in second.err
    )
    assert "there are 9, of the models brief, llama, qwen, ray" in second.err
    empty = run_here("history", prometheus, "--since", "1h")
    assert (empty.code, "the server has 0 other metrics" in empty.err) == (4, True)
    assert "--since" in run_here("history", prometheus, "--since", "soon").err


def test_labels_control_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Model, method and version are what the server has stored."""
    numbers = dict.fromkeys(get_annotations(Summary), 1.0)
    hostile = Configuration(3, "\x9b31m", "\u202e1")
    summary = Summary(**(numbers | {"configuration": hostile}))
    model = ModelHistory("\x9b2J", (summary,), (), ())
    past = HistoryDocument(
        FORMAT,
        version="1",
        since_seconds=0.0,
        until_seconds=60.0,
        block_seconds=60.0,
        models=(model,),
        warnings=("\x9b: store down",),
    )
    written = []
    for as_json in (True, False):
        show(Namespace(json=as_json), past, "")
        written.append(capsys.readouterr().out)
    for text in written:
        assert ": store down" in text, text
        assert text.replace("\n", "").isprintable(), text
    assert json.loads(written[0])["models"][0]["name"] == "\x9b2J"


async def test_warnings_are_kept() -> None:
    """Thanos, Mimir and VictoriaMetrics answer with what they have, and warn that a
    part is missing.
    """
    body = (
        b'{"data": {"result": []}, "warnings": ["receive series: store\\nis down"], '
        b'"isPartial": true}'
    )
    with FaultyServer(answer(body)) as server:
        source = Prometheus(parse_target(server.url), UpstreamConfig())
        grids = [await source.grid("up", TimeGrid(60.0, 60.0, 1)) for _ in range(2)]
        await source.close()
    assert grids == [{}, {}]
    assert list(source.warnings) == [
        "receive series: store is down",
        "partial response",
    ]


async def test_a_query_that_is_too_expensive_is_divided_and_the_next_as_small() -> None:
    refused = []

    async def run(peer: Peer) -> None:
        while True:
            query = parse_qs(urlsplit((await peer.read_request()).path).query)
            start, end, step = (
                float(query[name][0]) for name in ("start", "end", "step")
            )
            if (end - start) / step >= 100:
                reply = "422 Unprocessable"
            else:
                reply = "200 OK"
            if reply != "200 OK":
                refused.append((end - start) / step)
            body = b'{"data": {"result": []}}'
            await peer.send(head(reply, Content_Length=len(body)) + body)

    with FaultyServer(Behaviour(run, reads_request=False)) as server:
        prometheus = Prometheus(parse_target(server.url), UpstreamConfig())
        for _ in range(2):
            await prometheus.grid("up", TimeGrid(60.0, 60.0, 1000))
        await prometheus.close()
    assert refused == [999, 499, 249, 124]


class Fleet(Prometheus):
    """A vLLM in a Prometheus that has the exporters of 5,000 others: notes how large
    queries are.
    """

    def __init__(self) -> None:
        super().__init__(parse_target("http://127.0.0.1:9"), UpstreamConfig())
        self.asked: list[tuple[str, TimeGrid]] = []

    async def series(
        self, selector: str, start: float, end: float
    ) -> list[dict[str, str]]:
        if "vllm_specdec_info" in selector:
            return [{"pod": f"pod-{number}"} for number in range(5000)]
        return [{"__name__": "vllm:num_requests_running", "instance": "r0"}]

    async def grid(self, expression: str, times: TimeGrid) -> dict[Any, Any]:
        self.asked.append((expression, times))
        if "vllm_specdec_info" in expression:
            return {
                (("pod", f"pod-{number}"),): [1.0] * times.number
                for number in range(300)
            }
        if "count_over_time" in expression:
            return {(): [200.0] * times.number}
        return {}


async def test_the_exporters_of_a_large_fleet_are_read_in_parts() -> None:
    """By their own number, however few servers are chosen, each time once, and in
    little memory.
    """
    fleet = Fleet()
    tracemalloc.start()
    scope = PastScope(BEGIN, BEGIN + 30 * DAY, match='pod="r0"')
    await read_stored(fleet, scope)
    assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    tracemalloc.stop()
    parts = [
        times for expression, times in fleet.asked if "vllm_specdec_info" in expression
    ]
    (complete,) = [
        times for expression, times in fleet.asked if "avg_over_time" in expression
    ]
    assert max(part.number for part in parts) * 5000 <= 100_000
    assert [part.at(n) for part in parts for n in range(part.number)] == [
        *map(complete.at, range(complete.number))
    ]


def test_prefill_servers_alone_have_no_past() -> None:
    world = World([Life("p0", 0, 0.5, 0)])
    for counts in world.counts.values():
        counts["generation_tokens"] = counts["requests"]
    with FaultyServer(api(world, exporters=False)) as server:
        refused = run_here("history", server.url, *SINCE)
    assert refused.code == 4
    assert "no request had more than one output token" in refused.err


@pytest.mark.parametrize(
    "native", [{}, {"r0:8000": 9999, "r1:8000": 500}], ids=["classic", "mixed"]
)
def test_reading_adds_nothing_and_loses_nothing(
    native: dict[str, int], tmp_path: Path
) -> None:
    """From a server whose increases are exact, speedups and baseline are those of the
    past itself.

    Buckets are dropped at first. In the mixed case, the histograms of one replica are
    native, and for half of the time without speculation those of another: only PromQL's
    functions return their sum and count.
    """
    world = four(1)
    out = tmp_path / "baseline.json"
    (past,) = world.past().histories()
    with FaultyServer(api(world, exporters=True, native=native)) as server:
        (model,) = models_of(server.url, f"--out={out}")
    assert [each["configuration"]["method"] for each in model["configurations"]] == [
        "",
        *["eagle3"] * 3,
    ]
    speedups = [each["speedup"]["value"] for each in model["comparisons"]]
    assert speedups == pytest.approx([c.speedup.value for c in past.comparisons])
    blocks = [each["blocks"] for each in model["comparisons"]]
    assert blocks == [each.blocks for each in past.comparisons]
    lives = [
        (world.counts[life], max(WITHOUT_BUCKETS, native.get(life.replica, 0)))
        for life in world.lives[:3]
    ]
    times = [
        bucket.latencies.time_per_output_token
        for bucket in decode(out.read_bytes()).buckets
    ]
    recorded = [sum(getattr(time, part) for time in times) for part in ("count", "sum")]
    finished = [
        sum(counts[f"tpot_{part}"][first:-2].sum() for counts, first in lives)
        for part in ("count", "sum")
    ]
    assert recorded == pytest.approx(finished)


@pytest.mark.parametrize("value", ["1.5.2", "", "0x1"])
async def test_a_value_that_is_no_number(value: str) -> None:
    body = {"data": {"result": [{"metric": {}, "values": [[60, value]]}]}}
    with FaultyServer(answer(json.dumps(body).encode())) as server:
        source = Prometheus(parse_target(server.url), UpstreamConfig())
        with pytest.raises(PrometheusError, match="not a response of a Prometheus"):
            await source.grid("up", TimeGrid(60.0, 60.0, 1))
        await source.close()


def test_the_readme_shows_what_it_prints(prometheus: str) -> None:
    """A speedup over no speculation, from vLLM's own series alone."""
    (block,) = re.findall(
        r"```console\n(\$ vllm-specdec-exporter history .+?)```",
        text_of("README.md"),
        re.DOTALL,
    )
    printed = run_here("history", prometheus, *LLAMA).out
    assert missing(transcript_of(block).output, printed) == ""
