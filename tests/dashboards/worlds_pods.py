"""Pods, and what Prometheus scrapes of them: vLLM's own series, and those of the
exporter beside it.

The exporter is the real one from the poller to the collector: it polls answers of the
servers on a clock that does not wait.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashboards.worlds_requests import RequestTraffic, Seen
from dashboards.worlds_traffic import (
    TICK,
    Counts,
    Key,
    Phase,
    Samples,
    answer,
    count,
    pairs_of,
    texts,
    together,
)
from vllm_specdec_exporter import __version__
from vllm_specdec_exporter.observe.result import (
    ExporterResult,
    Reload,
    thresholds_by_model,
)
from vllm_specdec_exporter.publish.metrics_text import metrics_text
from vllm_specdec_exporter.serve.poller import Poller
from vllm_specdec_exporter.settings.configuration import load
from vllm_specdec_exporter.upstream.client import PollError, UpstreamResponse

JOB = "vllm-specdec-exporter"
VLLM_JOB = "vllm"
VERSION = "0.32.0"
#: What the exporter reads of a server's answer; of the histograms only where it has a
#: baseline.
_POLLED = (
    "sglang:spec_num_",
    "sglang:spec_verify_calls_total",
    "sglang:num_",
    "sglang:generation_tokens_total",
    "llamacpp:",
    "vllm:spec_decode_num_",
    "vllm:generation_tokens_total",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
)
_LATENCIES = (
    "vllm:time_to_first_token_seconds",
    "vllm:request_time_per_output_token_seconds",
    "vllm:e2e_request_latency_seconds",
)
#: Ticks between two polls.
_POLLED_EVERY = 2
#: Of what an exporter with its own clock takes for a poll, in seconds.
_POLL_SECONDS = (0.0041, 0.0048, 0.0063)

_LINE = re.compile(r"(?m)^(\w+)(\{.*\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Server:
    """A vLLM."""

    address: str  # host and port
    #: What each engine goes through, by model and engine; all are as long, and are up
    #: together
    stories: Mapping[tuple[str, str], tuple[Phase, ...]]


@dataclass(frozen=True)
class Pod:
    """One or more servers and the exporter that watches them."""

    address: str  # of the exporter
    servers: tuple[Server, ...]  # what it watches
    #: Of both scrape targets, such as `namespace`.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Of the exporter, as `config.load` takes them.
    flags: Mapping[str, Any] = field(default_factory=dict)
    #: What its first server is asked, if the exporter sees requests.
    requests: RequestTraffic | None = None
    #: Whether Prometheus reaches the exporter, by minutes before the end
    scraped: Callable[[float], bool] = lambda _minutes: True
    #: Whether the pod exists, likewise; without it there is no target
    there: Callable[[float], bool] = lambda _minutes: True


@dataclass
class Storage:
    """What Prometheus has scraped, by series: a sample for each scrape, NaN where there
    is none.
    """

    times: Samples  # of the scrapes, Unix time
    #: By name and labels.
    series: dict[Key, Samples] = field(default_factory=dict)

    def rows(self, name: str, labels: Mapping[str, str]) -> Samples:
        """Return the samples of a series, which may be new."""
        key = (name, pairs_of(labels))
        if key not in self.series:
            self.series[key] = np.full(len(self.times), np.nan)
        return self.series[key]

    def select(
        self, name: str, **labels: str
    ) -> Iterator[tuple[dict[str, str], Samples]]:
        """Yield the series of a name that have these labels, each with its samples."""
        for (metric, pairs), rows in self.series.items():
            if metric == name and labels.items() <= dict(pairs).items():
                yield dict(pairs), rows


def spec_config(method: str = "eagle3", k: int = 3, **more: object) -> str:
    """Return what vLLM is given as `--speculative-config`."""
    return json.dumps({"method": method, "num_speculative_tokens": k, **more})


@dataclass
class _Clock:
    """A clock that goes on when told to, and a little with every poll."""

    now: float = 0.0
    tick: int = 0  # of the servers

    def __call__(self) -> float:
        return self.now


class _Replayed:
    """In the place of the exporter's client: the answers that a server would have
    given.
    """

    timeout = 4.0

    def __init__(self, clock: _Clock, counts: Counts, wanted: tuple[str, ...]) -> None:
        self._clock = clock
        self._counts = counts
        self._texts = texts(counts, wanted)
        self._polls = 0

    def release(self) -> None:
        """Nothing is held."""

    async def fetch(self) -> UpstreamResponse:
        self._polls += 1
        self._clock.now += _POLL_SECONDS[self._polls % len(_POLL_SECONDS)]
        body = answer(self._counts, self._texts, self._clock.tick)
        if len(body) < 2:
            raise PollError("refused", "nothing listens there")
        return UpstreamResponse(body, "text/plain; version=0.0.4")

    async def version(self, _seconds: float) -> str:
        return VERSION

    def mask(self, text: str) -> str:
        """Return it as it is: no credentials are sent."""
        return text

    async def close(self) -> None:
        """Nothing is open."""


def scrape(
    storage: Storage, pods: Iterable[Pod], every: int, kept: Callable[[str], bool]
) -> None:
    """Let pods run, and store what Prometheus scrapes every so many ticks, of servers
    what it keeps.
    """
    at = slice(every - 1, None, every)
    for number, pod in enumerate(pods):
        counted = []
        for server in pod.servers:
            engines = [
                count(story, model, engine, 1 + 100 * number + 10 * index)
                for index, ((model, engine), story) in enumerate(server.stories.items())
            ]
            counts = together(engines)
            counted.append(counts)
            target = {**pod.labels, "job": VLLM_JOB, "instance": server.address}
            up = ~np.isnan([rows[at] for rows in counts.series.values()]).all(axis=0)
            _meta(storage, target, up, len(counts.series))
            for (name, labels), rows in counts.series.items():
                if kept(name):
                    storage.series[name, pairs_of({**target, **dict(labels)})] = rows[
                        at
                    ]
        asyncio.run(_watch(storage, pod, counted, every))
        _forget(storage, pod)


def _forget(storage: Storage, pod: Pod) -> None:
    """Take away what Prometheus cannot have scraped, because there was no such pod."""
    gone = ~_when(pod.there, storage)
    addresses = {pod.address, *(server.address for server in pod.servers)}
    for (_, labels), rows in storage.series.items():
        if gone.any() and dict(labels)["instance"] in addresses:
            rows[gone[: len(rows)]] = np.nan


def _when(condition: Callable[[float], bool], storage: Storage) -> NDArray[np.bool_]:
    """Return for each scrape whether a condition on the minutes until the end holds."""
    minutes = (storage.times[-1] - storage.times) / 60
    return np.array(list(map(condition, minutes)))


def _meta(
    storage: Storage, target: Mapping[str, str], up: NDArray[np.bool_], samples: int
) -> None:
    """Store what Prometheus notes of every scrape itself."""
    values = {
        "up": up.astype(float),
        "scrape_duration_seconds": np.where(up, 0.004 + 0.00001 * samples, 0.0003),
        "scrape_samples_scraped": np.where(up, samples, 0.0),
    }
    for name, rows in values.items():
        storage.series[name, pairs_of(target)] = rows


async def _watch(
    storage: Storage, pod: Pod, counted: Sequence[Counts], every: int
) -> None:
    """Let the exporter poll, and store what it says at every scrape."""
    poll_seconds = _POLLED_EVERY * TICK
    urls = [f"http://{server.address}" for server in pod.servers]
    flags = {"vllm.url": urls, "poll.interval": f"{poll_seconds}s", **pod.flags}
    config = load(flags, {})
    settings = config.settings
    start = float(storage.times[0]) - every * TICK
    clock = _Clock()
    wanted = _POLLED + (_LATENCIES if settings.baseline else ())
    pollers = [
        Poller(
            target.name,
            _Replayed(clock, counts, wanted),  # type: ignore[arg-type]
            settings,
            poll_seconds,
            patience=poll_seconds + _Replayed.timeout + 1.0,
            clock=clock,
            wall=lambda: start + clock.now,
            log=lambda _events: None,
        )
        for target, counts in zip(config.upstream.targets, counted, strict=True)
    ]
    observed = None
    if pod.requests:
        model = next(iter(pod.servers[0].stories))[0]
        observed = Seen(pod.requests, model, settings.thresholds)
    thresholds = dict(settings.thresholds.items())
    reload = Reload(successful=True, success_timestamp_seconds=start - 30.0)
    target = {**pod.labels, "job": JOB, "instance": pod.address}
    up = _when(pod.scraped, storage)
    samples: list[tuple[str, str, str]] = []

    @cache
    def rows(name: str, *labels: tuple[str, str]) -> Samples:
        return storage.rows(name, {**target, **dict(labels)})

    for tick in range(_POLLED_EVERY - 1, counted[0].ticks, _POLLED_EVERY):
        clock.tick = tick
        clock.now = float((tick + 1) * TICK) - 2.0  # polls are not in step with scrapes
        for poller in pollers:
            await poller.poll()
        if observed:
            observed.go_on(poll_seconds, clock.now, start + clock.now)
        number = (tick + 1) // every - 1
        if (tick + 1) % every or not up[number]:
            continue
        clock.now = float((tick + 1) * TICK)
        targets = tuple(poller.result(clock.now) for poller in pollers)
        result = ExporterResult(
            version=__version__,
            timestamp_seconds=start + clock.now,
            targets=targets,
            thresholds=thresholds,
            model_thresholds=thresholds_by_model(targets, thresholds),
            reload=reload,
            requests=observed.result(clock.now) if observed else None,
        )
        # No label of a world has an escape; prometheus_client's parser takes three
        # times as long.
        samples = _LINE.findall("".join(metrics_text(result)))
        for name, labels, value in samples:
            rows(name, *_LABEL.findall(labels))[number] = float(value)
        rows("process_cpu_seconds_total")[number] = round(0.31 + 0.0009 * clock.now, 2)
        memory = 41_943_040.0 + 4096 * (number % 7)
        rows("process_resident_memory_bytes")[number] = memory
    _meta(storage, target, up, len(samples))
