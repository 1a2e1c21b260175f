"""A real Prometheus scrapes the real exporter, which polls recorded answers of a real
vLLM.

Two exporters run at once for twenty seconds, and then without a server behind them for
some more: `plain` sees the recorded series and knows the baseline of the same server
without speculation, `torn` sees the same series with answers torn between two counters.
The tests then ask what was stored.

A scrape stores the samples of all series with one timestamp, and tells by
`last_success_timestamp_seconds` which poll it shows. So every comparison here is
between values of known polls, and nearly all are exact.
"""

import math
import operator
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import pytest

from golden.cases import recorded_baseline
from prometheus.replay import ReplayServer, series
from support.exporter import RunningExporter, running_exporter
from support.programs import eventually
from support.prometheus import PrometheusServer, Series
from vllm_specdec_exporter.economics.baseline import encode
from vllm_specdec_exporter.publish.metrics import METRICS, Kind, MetricScope

POLL_SECONDS = 1.0
SCRAPE_INTERVAL = "250ms"
FLAGS = [
    "--poll.interval",
    "1s",
    "--poll.timeout",
    "950ms",
    "--window",
    "3s",
    "--window",
    "10s",
]
SCENARIO = "ngram-phases"
K = 4

PREFIX = "vllm_specdec_"
#: The recorded answers to play: one of four, and less of the idle time.
PLAYED = [*range(0, 62, 4), *range(62, 80, 6), *range(80, 102, 4)]
#: Everything that the run stored.
ALL = "5m"

#: One scrape: the value of each series by its name without prefix and its own labels.
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


# --- the answers


_DRAFTS = re.compile(
    rb"^vllm:spec_decode_num_(?:drafts|draft_tokens)_total\{.*\n", re.MULTILINE
)
_DRAFTS_VALUE = re.compile(
    rb"^vllm:spec_decode_num_drafts_total\{.* (.*)$", re.MULTILINE
)
_PER_POSITION_VALUE = re.compile(
    rb"^vllm:spec_decode_num_accepted_tokens_per_pos_total\{.* (.*)$", re.MULTILINE
)
_ACCEPTED = re.compile(
    rb"^vllm:spec_decode_num_accepted_tokens\w*_total\{.*\n", re.MULTILINE
)


def torn(bodies: Sequence[bytes]) -> list[bytes]:
    """The answers at `PLAYED`, two of three of them torn, in one way and the other.

    A torn answer has some counters of this answer and the others of the next, so no
    counter ever falls. The last answer is whole, and the one before it torn.
    """
    answers = []
    for number, index in enumerate(PLAYED[:-1]):
        delayed = {0: _DRAFTS, 1: _ACCEPTED}.get(number % 3)
        if index == PLAYED[-2]:
            delayed = _ACCEPTED
        if delayed is None:
            answers.append(bodies[index])
            continue
        old = iter(delayed.findall(bodies[index]))
        answers.append(
            delayed.sub(lambda _, old=old: next(old), bodies[PLAYED[number + 1]])
        )
    return [*answers, bodies[PLAYED[-1]]]


def naive_buckets(body: bytes) -> list[float]:
    """The buckets as they follow from one answer alone: drafts less those accepted at
    each position.
    """
    (drafts,) = _DRAFTS_VALUE.findall(body)
    return [float(drafts) - float(value) for value in _PER_POSITION_VALUE.findall(body)]


PLAIN = [series(SCENARIO)[index] for index in PLAYED]
TORN = torn(series(SCENARIO))


# --- the run


@dataclass(frozen=True)
class Scrape:
    """What one scrape stored."""

    time: float
    values: Values

    def one(self, name: str, **labels: str) -> float | None:
        """The value of a series, given the labels that tell it from its siblings."""
        wanted = set(labels.items())
        matching = [
            value
            for (series, pairs), value in self.values.items()
            if series == name and wanted <= set(pairs)
        ]
        assert len(matching) <= 1, f"{name} {labels} is not one series"
        if matching:
            return matching[0]
        return None

    @property
    def poll(self) -> tuple[float, float]:
        """What tells the poll that it shows: the time of the last success, and the
        failures so far.
        """
        refused = self.one("poll_errors_total", reason="refused")
        return self.one("last_success_timestamp_seconds") or 0.0, refused or 0.0


@dataclass
class Run:
    """The finished run: who stored it, and when the servers went down and came back."""

    prometheus: PrometheusServer
    began: float
    down: float
    back: float
    ended: float

    def scrapes(self, job: str) -> list[Scrape]:
        """Return what was stored, scrape by scrape."""
        by_time = {}
        selector = f'{{__name__=~"{PREFIX}.+",job="{job}"}}'
        for labels, samples in self.prometheus.samples(
            selector, ALL, self.ended
        ).items():
            key = own(labels)
            for moment, value in samples.items():
                by_time.setdefault(moment, {})[key] = value
        return [Scrape(moment, by_time[moment]) for moment in sorted(by_time)]

    @cached_property
    def plain(self) -> list[Scrape]:
        """What is stored of the exporter that saw the series as recorded."""
        return self.scrapes("plain")


def own(labels: Series) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the name without prefix, and the labels that the exporter gave."""
    by_name = dict(labels)
    name = by_name.pop("__name__").removeprefix(PREFIX)
    return name, tuple(
        sorted((k, v) for k, v in by_name.items() if k not in ("job", "instance"))
    )


def exporter_of(
    server: ReplayServer, *flags: str
) -> AbstractContextManager[RunningExporter]:
    """Run an exporter for a server."""
    return running_exporter("--vllm.url", server.url, *FLAGS, *flags, fast=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Play everything once; the tests only ask."""
    baseline = tmp_path_factory.mktemp("prometheus") / "baseline.json"
    baseline.write_bytes(encode(recorded_baseline()))
    with (
        ReplayServer(PLAIN) as plain_server,
        ReplayServer(TORN) as torn_server,
        exporter_of(plain_server, "--baseline.file", str(baseline)) as plain,
        exporter_of(torn_server) as torn_one,
        PrometheusServer(
            {"plain": plain.address, "torn": torn_one.address}, interval=SCRAPE_INTERVAL
        ) as prometheus,
    ):
        began = time.time()
        eventually(lambda: plain_server.finished and torn_server.finished, 90)
        last = naive_buckets(PLAIN[-1])[0]
        bucket = (
            f'{PREFIX}accepted_tokens_per_draft_bucket{{job="plain",le="0.0"}} == '
            f"{last}"
        )
        prometheus.wait_for(bucket, 60)
        drafts = f"{PREFIX}drafts_total"
        prometheus.wait_for(
            f'{drafts}{{job="torn"}} == on() {drafts}{{job="plain"}}', 60
        )
        down = time.time()
        plain_server.refuse()
        torn_server.refuse()
        up = f'{PREFIX}up{{job="plain"}}[1s]'
        prometheus.wait_for(
            f"count_over_time({up}) > 2 and max_over_time({up}) == 0", 60
        )
        back = time.time()
        plain_server.listen()
        torn_server.listen()
        prometheus.wait_for(
            f'{PREFIX}window_drafts{{job="plain",window="3s"}} == 0', 60
        )
        yield Run(prometheus, began=began, down=down, back=back, ended=time.time())


# --- PromQL


def test_promql_finds_where_speculation_loses(run: Run) -> None:
    """A rule that compares the end of the interval with the threshold says what the
    verdict says.
    """
    high = f'{PREFIX}speedup_interval{{job="plain",bound="high"}}'
    threshold = (
        f'on() group_left {PREFIX}threshold{{job="plain",threshold="harmful_speedup"}}'
    )
    verdict = f'{PREFIX}payoff{{job="plain",verdict="harmful"}} == 1'
    judged = [
        s
        for s in run.plain
        if s.one("up") == 1 and s.one("activity", state="active") == 1
    ]
    assert len(judged) > 12
    verdicts = set()
    for scrape in judged[:: max(1, len(judged) // 12)]:
        rule = bool(run.prometheus.query(f"{high} < {threshold}", scrape.time))
        assert rule == bool(run.prometheus.query(verdict, scrape.time)), scrape.time
        verdicts.add(rule)
    assert True in verdicts


def test_every_scrape_of_a_poll_sees_the_same_values(run: Run) -> None:
    """Nothing moves between two polls: no window slides, no gauge is computed anew."""
    by_poll = {scrape.poll: scrape.values for scrape in run.plain}
    for scrape in run.plain:
        assert by_poll[scrape.poll] == scrape.values, scrape.time
    # Half would do: a busy machine loses scrapes.
    assert len(by_poll) > len(PLAIN) * 0.5
    assert len(run.plain) - len(by_poll) > len(PLAIN) // 2


# --- the server goes away


def outage(run: Run) -> float:
    """A moment in the outage, right after a scrape that shows it."""
    return (
        next(s.time for s in run.plain if s.time > run.down and s.one("up") == 0)
        + 0.001
    )


def test_series_of_a_server_that_is_down_go_stale_at_once(run: Run) -> None:
    """No look-back serves old values: the first scrape after a failed poll ends every
    series of an engine.

    `up` is of the exporter, `vllm_specdec_up` of the server; alerts must be able to
    tell them apart.
    """
    of_engines = f'{{__name__=~"{PREFIX}.+",job="plain",model_name!=""}}'
    assert run.prometheus.query(of_engines, run.down)
    assert run.prometheus.query(of_engines, outage(run)) == {}
    assert run.prometheus.value(f'{PREFIX}up{{job="plain"}}', run.down) == 1
    outage_seconds = f"{max(1, math.floor(run.back - run.down))}s"
    assert (
        run.prometheus.value(
            f'min_over_time(up{{job="plain"}}[{outage_seconds}])', run.back
        )
        == 1
    )
    assert (
        run.prometheus.value(
            f'min_over_time({PREFIX}up{{job="plain"}}[{outage_seconds}])', run.back
        )
        == 0
    )


# --- the histogram


@pytest.mark.parametrize("job", ["plain", "torn"])
def test_no_counter_and_no_bucket_ever_falls(run: Run, job: str) -> None:
    """Prometheus sees not one reset within the life of the server, whatever its answers
    were torn into.

    Buckets rise with their bounds, up to the count, in every scrape. Computed from each
    torn answer alone, they would fall again and again.
    """
    naive = list(map(naive_buckets, TORN))
    falls = 0
    for earlier, later in pairwise(naive):
        falls += sum(map(operator.lt, later, earlier))
    assert falls > 10
    unseen = (
        MetricScope.REQUESTS,
        MetricScope.GROUP,
        MetricScope.MODEL,
        MetricScope.TENANT,
    )  # without a tap
    names = [
        row.name
        for row in METRICS
        if row.kind is Kind.COUNTER and row.scope not in unseen
    ]
    names += [
        f"accepted_tokens_per_draft_{part}" for part in ("bucket", "count", "sum")
    ]
    for name in names:
        resets = run.prometheus.query(
            f'resets({PREFIX}{name}{{job="{job}"}}[{ALL}])', run.ended
        )
        assert set(resets.values()) == {0.0}, name
        assert len(resets) == K + 2 or not name.endswith("_bucket"), name
    scrapes = [s for s in run.scrapes(job) if s.one("up") == 1]
    assert len(scrapes) > len(PLAIN)
    for scrape in scrapes:
        bounds = [*(f"{j}.0" for j in range(K + 1)), "+Inf"]
        values = [
            scrape.one("accepted_tokens_per_draft_bucket", le=bound) for bound in bounds
        ]
        assert None not in values, scrape.time
        assert sorted(values) == values, scrape.time
        assert scrape.one("accepted_tokens_per_draft_count") == values[-1], scrape.time
