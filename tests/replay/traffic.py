"""A service as its servers count it, minute by minute: the truth that the exporter is
then shown.

Statistical, not step by step: weeks pass in seconds. The drafts of one request resemble
each other, so counts vary `CLUSTERING` times as much as independent drafts would; the
figure comes from real per-request records (see `economics.choice`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from vllm_specdec_exporter.economics.statistics import CLUSTERING
from vllm_specdec_exporter.engines.reading import (
    Counters,
    EngineKey,
    EngineReading,
    Load,
    Steps,
)

#: Steps a minute of one request; a draft each.
STEPS = 60 * 30


@dataclass(frozen=True)
class Conditions:
    """What one engine goes through at a time."""

    running: float = 8.0  # requests in the batch
    #: Chance at each position, given acceptance of all positions before; its length is
    #: K.
    acceptance: tuple[float, ...] = (0.80, 0.72, 0.66)
    drafted: float = 1.0  # share of the steps that have a draft
    step_seconds: float = 0.0  # time of a step; 0 where the server does not say
    waiting: float = 0.0  # requests in the queue
    kv_cache: float = 0.4  # used share of the KV cache
    restart: bool = False  # whether the engine has just been started
    version: str = "0.32.0"  # of the server
    #: Whether the server can be polled, or why not: a reason of poll_errors_total.
    serving: str = ""
    scraped: bool = True  # whether Prometheus can scrape the exporter
    target: bool = True  # whether Prometheus has the exporter as a target at all
    current: bool = True  # whether the exporter really polls, though it says so
    configured: bool = True  # whether the exporter runs on its newest configuration
    thresholds: bool = True  # whether the exporter's thresholds reach Prometheus


@dataclass
class Engine:
    """One engine's counters."""

    key: EngineKey
    random: np.random.Generator
    drafts: float = 0.0
    draft_tokens: float = 0.0
    positions: list[float] = field(default_factory=list)
    generated: float = 0.0
    steps: Steps = Steps(0.0, 0.0)

    def advance(self, conditions: Conditions, minutes: float = 1.0) -> EngineReading:
        """Let some time pass, and return what the server says at its end."""
        if conditions.restart:
            self.drafts = self.draft_tokens = self.generated = 0.0
            self.positions = []
        self.positions += [0.0] * (len(conditions.acceptance) - len(self.positions))
        steps = float(self.random.poisson(conditions.running * STEPS * minutes))
        drafts = round(steps * conditions.drafted)
        accepted = 0.0
        left = drafts
        for index, chance in enumerate(conditions.acceptance if drafts else ()):
            left = self._clustered(left, chance)
            self.positions[index] += left
            accepted += left
        self.drafts += drafts
        self.draft_tokens += drafts * len(conditions.acceptance)
        self.generated += steps + accepted
        if conditions.step_seconds:
            seconds = self.steps.step_seconds or 0.0
            observations = self.steps.step_observations or 0.0
            seconds += steps * conditions.step_seconds
            self.steps = Steps(seconds, observations + steps)
        return EngineReading(
            self.key,
            Counters(
                drafts=self.drafts,
                draft_tokens=self.draft_tokens,
                accepted_tokens=sum(self.positions),
                accepted_tokens_per_position=tuple(self.positions),
                generation_tokens=self.generated,
            ),
            Load(conditions.running, conditions.waiting, conditions.kv_cache),
            steps=self.steps,
        )

    def _clustered(self, drafts: int, chance: float) -> int:
        groups = drafts / CLUSTERING
        if groups < 1:
            return int(self.random.binomial(drafts, chance))
        return min(
            drafts,
            round(self.random.binomial(round(groups), chance) * drafts / round(groups)),
        )


def daily(minute: int, peak: float = 20.0, lull: float = 0.02) -> float:
    """Return the requests that run at a time of day: a lull at night, a peak in the
    afternoon.
    """
    hour = minute / 60.0 % 24.0
    wave = max(0.0, math.sin((hour - 6.0) / 24.0 * 2.0 * math.pi))
    return peak * max(lull, wave)


def shifted(acceptance: tuple[float, ...], by: float) -> tuple[float, ...]:
    """Return acceptance moved up or down at every position, within its range."""
    return tuple(min(0.999, max(0.001, chance + by)) for chance in acceptance)


def healthy(
    minute: int, noise: float = 0.0, base: Conditions = Conditions()
) -> Conditions:
    """Return an ordinary minute: load by the time of day, acceptance by what is asked
    at that time.
    """
    running = daily(minute)
    # Code by day, talk in the evening: acceptance is a little lower then, every day
    # alike.
    mix = 0.02 * math.sin(minute / 1440.0 * 2.0 * math.pi)
    return replace(
        base,
        running=running,
        acceptance=shifted(base.acceptance, mix + noise),
        kv_cache=0.15 + 0.5 * running / 20.0,
    )


def wandering(
    random: np.random.Generator, minutes: int, deviation: float, hours: float
) -> Iterator[float]:
    """Yield noise that wanders slowly: its memory fades over `hours`."""
    keep = math.exp(-1.0 / (60.0 * hours))
    value = 0.0
    for _ in range(minutes):
        value = keep * value + deviation * math.sqrt(1.0 - keep * keep) * float(
            random.standard_normal()
        )
        yield value
