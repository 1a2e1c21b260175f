"""Eight days of a healthy service: noise, idle nights, weekends, bursts, deployments,
crashes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from replay.scrape import Replica, Storage, settings
from replay.traffic import Conditions, healthy, wandering

#: A week, and a day that is compared with a week ago.
DAYS = 8
MINUTES = DAYS * 1440
MODEL = "meta-llama/Llama-3.3-70B-Instruct"
NAMESPACE = "chat"
SLOTS = 2
#: How long a model loads.
LOADING = 6


@dataclass(frozen=True)
class Life:
    """A version of a pod from its start to its end, in minutes of these days; the next
    starts at `end`.
    """

    slot: int
    number: int
    start: int
    end: int
    version: str


def lives(random: np.random.Generator) -> Iterator[Life]:
    """Yield the pods of all deployments: one every two to four days at working hours,
    rolling.
    """
    for slot in range(SLOTS):
        start = 0
        number = 0
        for day in _deployments(np.random.default_rng(7)):
            end = day * 1440 + 10 * 60 + 15 * slot
            yield Life(
                slot, number, start=start, end=end, version=f"0.{30 + number // 3}.0"
            )
            start = end
            number = number + 1
        yield Life(
            slot, number, start=start, end=MINUTES, version=f"0.{30 + number // 3}.0"
        )


def _deployments(random: np.random.Generator) -> Iterator[int]:
    day = 0
    while (day := day + int(random.integers(2, 5))) < DAYS:
        yield day


def play(seed: int, step: int = 2) -> Storage:
    """Return what Prometheus has after these days."""
    storage = Storage(step)
    random = np.random.default_rng(seed)
    slow = list(wandering(random, MINUTES, 0.015, 6.0))  # what users ask, all alike
    bursts = _bursts(random)
    crashes = {int(m) // step * step for m in random.integers(0, MINUTES, 3)}
    for life in lives(random):
        of_pod = list(wandering(random, life.end - life.start, 0.008, 0.5))
        story = _story(
            life, slow, of_pod=of_pod, bursts=bursts, crashes=crashes, random=random
        )
        # Two of three deployments restart the pod in place, as a StatefulSet's keep
        # their names. Each further pod makes all queries slower, also where it is long
        # gone.
        pod = f"llama-{life.slot}-{life.number // 3}"
        replica = Replica(
            MODEL, NAMESPACE, pod, settings(), seed=seed + 31 * life.number
        )
        replica.play(storage, story, range(life.start, life.end))
    return storage


def _bursts(random: np.random.Generator) -> list[float]:
    """Return a factor on the load by minute: weekends at half, and now and then an hour
    at 1.5.
    """
    factor = [1.0] * MINUTES
    for minute in range(MINUTES):
        if minute // 1440 % 7 in (5, 6):
            factor[minute] = 0.5
    for start in random.integers(0, MINUTES - 60, 2 * DAYS):
        for minute in range(start, start + 60):
            factor[minute] *= 1.5
    return factor


def _story(
    life: Life,
    slow: list[float],
    of_pod: list[float],
    bursts: list[float],
    crashes: set[int],
    random: np.random.Generator,
) -> Callable[[int], Conditions]:
    down_until = 0
    if life.start:
        down_until = life.start + LOADING
    fresh = True

    def story(minute: int) -> Conditions:
        nonlocal down_until, fresh
        if minute in crashes and life.slot == 0:
            down_until = minute + LOADING
            fresh = True
        conditions = healthy(minute, slow[minute] + of_pod[minute - life.start])
        running = conditions.running * bursts[minute]
        if running < 0.5 and random.random() < 0.7:
            running = 0.0  # nights are mostly idle
        conditions = replace(
            conditions,
            running=running,
            version=life.version,
            scraped=bool(random.random() > 0.001),
        )
        if minute < down_until:
            return replace(conditions, running=0.0, serving="refused")
        if fresh:
            fresh = False
            return replace(conditions, restart=True)
        return conditions

    return story
