"""A week of a healthy service: noise, night lulls, a weekend, bursts, deployments, crashes, lost scrapes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from replay.scrape import Replica, Storage, settings
from replay.traffic import Conditions, healthy, wandering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DAYS = 7
MINUTES = DAYS * 1440
MODEL, NAMESPACE = "meta-llama/Llama-3.3-70B-Instruct", "chat"
SLOTS = 2
#: Days with a deployment, and minutes at which the first server crashes: by day, and at night.
DEPLOYMENTS = (2, 4)
CRASHES = (1 * 1440 + 14 * 60, 5 * 1440 + 3 * 60)
#: How long a model loads.
LOADING = 6


@dataclass(frozen=True)
class Life:
    """A pod from its start to its end, in minutes; `end` is when the next one takes over."""

    slot: int
    number: int
    start: int
    end: int


def lives() -> Iterator[Life]:
    """Yield the pods of all deployments, which are rolling, at working hours."""
    for slot in range(SLOTS):
        ends = [day * 1440 + 10 * 60 + 15 * slot for day in DEPLOYMENTS]
        for number, (start, end) in enumerate(zip([0, *ends], [*ends, MINUTES], strict=True)):
            yield Life(slot, number, start, end)


def play(seed: int, step: int = 2) -> Storage:
    """Return what Prometheus has after the week."""
    storage = Storage(step)
    random = np.random.default_rng(seed)
    slow = list(wandering(random, MINUTES, 0.015, 6.0))  # what users ask, all alike
    bursts = _bursts(random)
    for life in lives():
        own = list(wandering(random, life.end - life.start, 0.008, 0.5))
        story = _story(life, slow, own, bursts, random)
        pod = f"llama-{life.slot}-{life.number}"
        Replica(MODEL, NAMESPACE, pod, settings(), seed=seed + 31 * life.number).play(
            storage, story, range(life.start, life.end)
        )
    return storage


def _bursts(random: np.random.Generator) -> list[float]:
    """Return a factor on the load by minute: weekends at half, and now and then an hour at 1.5."""
    factor = [0.5 if minute // 1440 % 7 in (5, 6) else 1.0 for minute in range(MINUTES)]
    for start in random.integers(0, MINUTES - 60, 2 * DAYS):
        for minute in range(start, start + 60):
            factor[minute] *= 1.5
    return factor


def _story(
    life: Life, slow: list[float], own: list[float], bursts: list[float], random: np.random.Generator
) -> Callable[[int], Conditions]:
    down_until = life.start + LOADING if life.start else 0
    fresh = True

    def story(minute: int) -> Conditions:
        nonlocal down_until, fresh
        if minute in CRASHES and life.slot == 0:
            down_until, fresh = minute + LOADING, True
        now = healthy(minute, slow[minute] + own[minute - life.start])
        running = now.running * bursts[minute]
        if running < 0.5 and random.random() < 0.7:
            running = 0.0  # nights are mostly idle
        version, scraped = f"0.{30 + life.number}.0", bool(random.random() > 0.001)
        now = replace(now, running=running, version=version, scraped=scraped)
        if minute < down_until:
            return replace(now, running=0.0, serving="refused")
        if fresh:
            fresh = False
            return replace(now, restart=True)
        return now

    return story
