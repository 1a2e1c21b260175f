"""What the totals of an engine's steps show between two readings.

vLLM's `inter_token_latency_seconds` has one observation for each request and step, so
its mean over an interval is the mean step time, whatever was accepted.
"""

from msgspec import Struct
from msgspec.structs import astuple

from ..engines.reading import Counters, Steps

_MIN_REQUESTS = 10  # requests that a mean context needs
#: Share of accepted tokens from which the observations show what they are of.
_SHOWING = 0.1


class StepIncrease(Struct, frozen=True):
    """The increase of an engine's totals between two readings without a reset; ``None``
    for one that is not known.
    """

    steps: Steps
    generation_tokens: float | None
    draft_tokens: float  # from 0, if the engine prints them from the first draft on
    #: Whether the engine observes tokens instead of steps (vLLM's pull request 47382):
    #: then drafts make no observation fewer.
    observes_tokens: bool

    @property
    def observed_steps(self) -> float | None:
        """The steps of each request behind its first token; ``None`` if not known."""
        if self.observes_tokens:
            return None
        return self.steps.step_observations

    @property
    def mean_step_seconds(self) -> float | None:
        """The mean time of a step; ``None`` if not known."""
        seconds = self.steps.step_seconds
        if seconds is None or not self.observed_steps:
            return None
        return seconds / self.observed_steps

    @property
    def counts_context(self) -> bool:
        """Whether the context of requests follows from the totals, once there are
        enough requests.
        """
        counted = (self.steps.prompt_tokens, self.steps.requests)
        return self.generation_tokens is not None and None not in counted

    @property
    def mean_context(self) -> float | None:
        """Tokens of context per request: the mean prompt, and half the mean response.

        ``None`` if they are not known, or with few requests. If requests differ much,
        the long ones take more steps, so the context of the mean step is longer.
        """
        prompts = self.steps.prompt_tokens
        generated = self.generation_tokens
        requests = self.steps.requests or 0.0
        if prompts is None or generated is None or requests < _MIN_REQUESTS:
            return None
        return (prompts + generated / 2) / requests

    @property
    def prompts_per_token(self) -> tuple[float, float] | None:
        """The least and the most prompt tokens that were computed for each generated
        one; ``None`` if not known.

        Where it is not counted how many of them the prefix cache had, from none to all.
        """
        prompts = self.steps.prompt_tokens
        if prompts is None or not self.generation_tokens:
            return None
        if self.steps.prefix_cache_hits is None:
            return 0.0, prompts / self.generation_tokens
        computed = max(0.0, prompts - self.steps.prefix_cache_hits)
        computed_per_token = computed / self.generation_tokens
        return computed_per_token, computed_per_token

    @property
    def draft_share(self) -> float | None:
        """Time of drafting over that of verification; ``None`` if not known."""
        if not self.steps.draft_seconds or not self.steps.verify_seconds:
            return None
        return self.steps.draft_seconds / self.steps.verify_seconds


def steps_between(
    before: tuple[Counters, Steps], after: tuple[Counters, Steps]
) -> StepIncrease:
    """Return the increase between two readings without a reset."""
    first, first_steps = before
    last, last_steps = after
    steps = Steps(*map(_increase, astuple(first_steps), astuple(last_steps)))
    # The first token of a request is not observed.
    observable = _from_zero(first.generation_tokens, last.generation_tokens)
    observable -= _from_zero(first_steps.requests, last_steps.requests)
    # What was accepted behind the end of an answer is not observed either.
    accepted = min(
        _from_zero(first.accepted_tokens, last.accepted_tokens),
        observable - _from_zero(first.drafts, last.drafts),
    )
    observations = steps.step_observations or 0.0
    return StepIncrease(
        steps=steps,
        generation_tokens=_increase(first.generation_tokens, last.generation_tokens),
        draft_tokens=_from_zero(first.draft_tokens, last.draft_tokens),
        observes_tokens=accepted > _SHOWING * observable
        and observations > observable - accepted / 4,
    )


def _increase(before: float | None, after: float | None) -> float | None:
    """Return the increase of a total, ``None`` if it is not known or fell."""
    if before is None or after is None or after < before:
        return None
    return after - before


def _from_zero(before: float | None, after: float | None) -> float:
    return (after or 0.0) - (before or 0.0)
