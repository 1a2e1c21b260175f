"""Engine steps between two samples: their time, from the inter-token latency, and their context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..economics.step_time import StepInterval

if TYPE_CHECKING:
    from ..engines.reading import Counters, Steps

#: Requests that a mean context needs.
_LEAST_REQUESTS = 10


def mean_seconds(first: Steps, last: Steps) -> float | None:
    """Return the mean time of the steps between two readings of one life, ``None`` if it is not known."""
    seconds = _between(first.step_seconds, last.step_seconds)
    observed = _between(first.step_observations, last.step_observations)
    return seconds / observed if seconds is not None and observed else None


def mean_context(before: tuple[Counters, Steps], after: tuple[Counters, Steps]) -> float | None:
    """Return the tokens of context per request: the mean prompt, and half of the mean answer.

    ``None`` if they are not known, or with few requests. In traffic whose requests differ much, the long ones
    take more steps, so the context of the mean step is longer.

    Args:
        before: the earlier of two readings of one life.
        after: the later one.
    """
    (first, first_steps), (last, last_steps) = before, after
    requests = _between(first_steps.requests, last_steps.requests)
    prompts = _between(first_steps.prompt_tokens, last_steps.prompt_tokens)
    generated = _between(first.generation_tokens, last.generation_tokens)
    if prompts is None or generated is None or requests is None or requests < _LEAST_REQUESTS:
        return None
    return (prompts + generated / 2) / requests


def step_interval(
    before: tuple[Counters, Steps],
    after: tuple[Counters, Steps],
    batch: float | None,
    kv_cache: float | None,
) -> tuple[StepInterval, float] | None:
    """Return the steps between two readings of one life, and the tokens drafted for each request in them.

    ``None`` without steps, or if the engine does not print them.

    Args:
        before: the earlier reading.
        after: the later one.
        batch: requests in the batch between them.
        kv_cache: share of the KV cache in use.
    """
    (first, first_steps), (last, last_steps) = before, after
    seconds = mean_seconds(first_steps, last_steps)
    observed = _between(first_steps.step_observations, last_steps.step_observations)
    drafted = _between(first.draft_tokens or 0.0, last.draft_tokens or 0.0)
    generated = _between(first.generation_tokens, last.generation_tokens)
    if not (seconds and observed and batch and generated) or drafted is None:
        return None
    prompts = _between(first_steps.prompt_tokens, last_steps.prompt_tokens) or 0.0
    return StepInterval(seconds, batch, kv_cache, prompts / (prompts + generated)), drafted / observed


def _between(before: float | None, after: float | None) -> float | None:
    """Return the increase of a total, ``None`` if it is not known or fell."""
    return None if before is None or after is None or after < before else after - before
