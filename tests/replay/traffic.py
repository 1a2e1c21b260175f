"""A service as its servers count it, minute by minute: the truth that the exporter is then shown.

Statistical, not step by step: weeks pass in seconds. The drafts of one request resemble each other, so
counts vary `CLUSTERING` times as much as independent drafts would; the figure comes from real per-request
records (see `economics.choice`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vllm_specdec_exporter.economics.statistics import CLUSTERING
from vllm_specdec_exporter.engines.reading import Counters, EngineKey, EngineReading, Load

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

#: Steps a minute of one request; a draft each.
STEPS = 60 * 30
#: Buckets of vLLM's own histograms, in seconds.
TTFT_BUCKETS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0)
TPOT_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
TOKENS_PER_REQUEST = 250.0


@dataclass(frozen=True)
class Conditions:
    """What one engine goes through at a time.

    Attributes:
        running: requests in the batch.
        acceptance: chance at each position, given acceptance of all positions before; its length is K.
        drafted: share of the steps that have a draft.
        waiting: requests in the queue.
        kv_cache: used share of the KV cache.
        first_token: median time to first token, in seconds.
        per_token: median time per output token, in seconds.
        spread: how wide the time per output token is spread: standard deviation of its logarithm.
        failed: share of the requests that end in an error.
        repetitive: share of the requests that are ended because they repeat themselves.
        preemptions: requests preempted a minute.
        restart: whether the engine has just been started.
        version: of the server.
        serving: whether the server can be polled, or why not: a reason of poll_errors_total.
        scraped: whether Prometheus can scrape the exporter.
        target: whether Prometheus has the exporter as a target at all.
        current: whether the exporter really polls, though it says so.
        configured: whether the exporter runs on its newest configuration.
        thresholds: whether the exporter's thresholds reach Prometheus.
        speculates: whether the server was started with speculation.
    """

    running: float = 8.0
    acceptance: tuple[float, ...] = (0.80, 0.72, 0.66)
    drafted: float = 1.0
    waiting: float = 0.0
    kv_cache: float = 0.4
    first_token: float = 0.15
    per_token: float = 0.02
    spread: float = 0.25
    failed: float = 0.0
    repetitive: float = 0.0
    preemptions: float = 0.0
    restart: bool = False
    version: str = "0.32.0"
    serving: str = ""
    scraped: bool = True
    target: bool = True
    current: bool = True
    configured: bool = True
    thresholds: bool = True
    speculates: bool = True


@dataclass
class Engine:
    """One engine's counters, and what its server counts beside speculation."""

    key: EngineKey
    random: np.random.Generator
    drafts: float = 0.0
    draft_tokens: float = 0.0
    positions: list[float] = field(default_factory=list)
    generated: float = 0.0
    server: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)

    def advance(self, now: Conditions, minutes: float = 1.0) -> EngineReading:
        """Let some time pass, and return what the server says at its end."""
        if now.restart:
            self.drafts = self.draft_tokens = self.generated = 0.0
            self.positions = []
            self.server = {}
        if now.speculates:
            self.positions += [0.0] * (len(now.acceptance) - len(self.positions))
        steps = float(self.random.poisson(now.running * STEPS * minutes))
        drafts = round(steps * now.drafted) if now.speculates else 0
        accepted = 0.0
        left = drafts
        for index, chance in enumerate(now.acceptance if drafts else ()):
            left = self._clustered(left, chance)
            self.positions[index] += left
            accepted += left
        self.drafts += drafts
        self.draft_tokens += drafts * len(now.acceptance)
        tokens = steps + accepted
        self.generated += tokens
        self._serve(now, tokens / TOKENS_PER_REQUEST, minutes)
        return EngineReading(
            self.key,
            Counters(
                drafts=self.drafts if now.speculates else None,
                draft_tokens=self.draft_tokens if now.speculates else None,
                accepted_tokens=sum(self.positions) if now.speculates else None,
                accepted_tokens_per_position=tuple(self.positions),
                generation_tokens=self.generated,
            ),
            Load(now.running, now.waiting, now.kv_cache),
        )

    def _clustered(self, drafts: int, chance: float) -> int:
        groups = drafts / CLUSTERING
        if groups < 1:
            return int(self.random.binomial(drafts, chance))
        return min(drafts, round(self.random.binomial(round(groups), chance) * drafts / round(groups)))

    def _serve(self, now: Conditions, requests: float, minutes: float) -> None:
        """Count what vLLM counts of requests."""

        def add(name: str, amount: float, **labels: str) -> None:
            key = (f"vllm:{name}", tuple(sorted(labels.items())))
            self.server[key] = self.server.get(key, 0.0) + amount

        good = 1.0 - now.failed - now.repetitive
        for reason, share in (("stop", good), ("error", now.failed), ("repetition", now.repetitive)):
            add("request_success_total", requests * share, finished_reason=reason)
        add("num_preemptions_total", now.preemptions * minutes)
        latencies = (
            ("time_to_first_token_seconds", TTFT_BUCKETS, now.first_token, 0.4),
            ("request_time_per_output_token_seconds", TPOT_BUCKETS, now.per_token, now.spread),
        )
        for name, bounds, median, spread in latencies:
            for bound in bounds:
                add(f"{name}_bucket", requests * _below(bound, median, spread), le=f"{bound:g}")
            add(f"{name}_bucket", requests, le="+Inf")
            add(f"{name}_count", requests)
        if now.speculates:
            for index, value in enumerate(self.positions):
                key = ("vllm:spec_decode_num_accepted_tokens_per_pos_total", (("position", str(index)),))
                self.server[key] = value


def _below(bound: float, median: float, spread: float) -> float:
    """Return the share of a lognormal distribution that is at most `bound`."""
    return 0.5 * (1.0 + math.erf(math.log(bound / median) / (spread * math.sqrt(2.0))))


def daily(minute: int, peak: float = 20.0, least: float = 0.02) -> float:
    """Return the requests that run at a time of day: a lull at night, a peak in the afternoon."""
    hour = minute / 60.0 % 24.0
    wave = max(0.0, math.sin((hour - 6.0) / 24.0 * 2.0 * math.pi))
    return peak * max(least, wave)


def shifted(acceptance: tuple[float, ...], by: float) -> tuple[float, ...]:
    """Return acceptance moved up or down at every position, within its range."""
    return tuple(min(0.999, max(0.001, chance + by)) for chance in acceptance)


def healthy(minute: int, noise: float = 0.0, base: Conditions = Conditions()) -> Conditions:
    """Return an ordinary minute: load by the time of day, acceptance by what is asked at that time."""
    running = daily(minute)
    # Code by day, talk in the evening: acceptance is a little lower then, every day alike.
    mix = 0.02 * math.sin(minute / 1440.0 * 2.0 * math.pi)
    busy = running / 20.0
    return replace(
        base,
        running=running,
        acceptance=shifted(base.acceptance, mix + noise),
        kv_cache=0.15 + 0.5 * busy,
        first_token=0.12 + 0.06 * busy,
        per_token=0.018 + 0.006 * busy,
    )


def wandering(random: np.random.Generator, minutes: int, deviation: float, hours: float) -> Iterator[float]:
    """Yield noise that wanders slowly: its memory fades over `hours`."""
    keep = math.exp(-1.0 / (60.0 * hours))
    value = 0.0
    for _ in range(minutes):
        value = keep * value + deviation * math.sqrt(1.0 - keep * keep) * float(random.standard_normal())
        yield value
