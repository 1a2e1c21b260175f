"""The theory of speculative decoding, for acceptance that is the same at every
position.

Source: Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative
Decoding" (2023, arXiv 2211.17192), equation 1. It is for planning without a server
(`plan`). Real acceptance falls from position to position, so `estimate` and `choice`
use the counters by position instead.
"""

import math

from msgspec import Struct

from .cost import Basis, CostProfile, PromptTimes
from .statistics import Interval, Z


def expected_tokens(acceptance: float, k: int) -> float:
    """Return the tokens that a draft of `k` is expected to emit, 1 to 1 + k (equation
    1).

    `acceptance` is the chance of a drafted token to be accepted if those before it
    were, 0 to 1.

    Raises:
        ValueError: an acceptance outside 0 to 1, or a negative k.
    """
    if not 0 <= acceptance <= 1 or k < 0:
        raise ValueError(
            f"acceptance lies from 0 to 1 and k from 0 up, not {acceptance:g} and {k}"
        )
    if acceptance == 1:
        return k + 1.0
    return float((1 - acceptance ** (k + 1)) / (1 - acceptance))


#: Least coverage at which the speedup of all tokens says enough about tokens from
#: drafts.
MIN_COVERED = 0.5


class Estimate(Struct, frozen=True):
    """The speedup of a window's acceptance by a cost profile. All ``None`` if it cannot
    be known.

    Attributes:
        speedup: times as fast as without speculation; below 1 it loses.
        speedup_low: lower end of its interval: of the cost of a step, and of the length
            by the sample.
        speedup_high: upper end; drafts never make a step cheaper, so it is at most that
            of the length.
        break_even_acceptance_length: the mean acceptance length at which speedup is 1;
            ``None`` if there is none.
        break_even_acceptance_ratio: the acceptance ratio at which it is 1; above 1,
            none could pay.
        step_cost: time of a step with drafts, in plain steps of the same batch.
        batch_size: requests in the batch, averaged over the window's drafts, at least
            1.
        basis: where the cost of a step comes from; `modelled` outside the batch sizes
            and contexts that were measured.
        undrafted_cost: time of a step that verifies no draft, in plain steps: above 1
            if a drafter's first pass runs in it, as with K=0 in a schedule, or if it
            gives first tokens and drafts for the next step.
    """

    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    break_even_acceptance_length: float | None = None
    break_even_acceptance_ratio: float | None = None
    step_cost: float | None = None
    batch_size: float | None = None
    basis: Basis | None = None
    undrafted_cost: float = 1.0

    @property
    def interval(self) -> Interval | None:
        """The speedup of tokens from drafts, with its interval; ``None`` if it cannot
        be known.
        """
        if self.speedup is None:
            return None
        return Interval(self.speedup, self.speedup_low, self.speedup_high)

    def of_all_tokens(self, covered: float | None) -> Interval | None:
        """Return the speedup of all tokens, of which a share `covered` comes from
        drafts, with both ends of its interval; ``None`` if it cannot be known.

        What a step without drafts costs beyond a plain one is known as badly as that of
        one with drafts.
        """
        interval = self.interval
        if interval is None:
            return None
        cost = self.step_cost or 1.0
        speedups = []
        for end in (interval.value, *interval.ends):
            error = 1.0
            if end and cost > 1:
                cost_at_end = cost * interval.value / end
                error = max(0.0, (cost_at_end - 1) / (cost - 1))
            undrafted = 1 + (self.undrafted_cost - 1) * error
            speedups.append(speedup_of_all_tokens(end, covered, undrafted))
        return Interval(*speedups)


def speedup_of_all_tokens(
    speedup: float, covered: float | None, undrafted: float
) -> float:
    """Return the speedup of all tokens if a share `covered` of them comes from drafts
    (Amdahl's law).

    A step without drafts takes the time of `undrafted` plain ones.
    """
    if covered is None or speedup == 0:
        return speedup
    return 1 / (covered / speedup + undrafted - covered * undrafted)


def speedup_of_drafts(
    speedup: float, covered: float | None, undrafted: float
) -> float | None:
    """Return the speedup of tokens from drafts, given that of all tokens; ``None`` if
    coverage is too low.
    """
    if covered is None:
        return speedup
    drafting_time = 1 / speedup - (1 - covered) * undrafted
    if covered < MIN_COVERED or drafting_time <= 0:
        return None
    return covered / drafting_time


def with_prompts(speedup: float, prompt_time: float, drafting: float) -> float:
    """Return the speedup of steps that also compute prompts, given that of decoding
    (Amdahl's law).

    `prompt_time` is what prompts add to a plain step, in plain steps: with speculation
    they take `drafting` times as long for each generated token.
    """
    if not speedup:
        return speedup
    return (1 + prompt_time) / (1 / speedup + prompt_time * drafting)


def break_even_length(step_cost: float, prompts: PromptTimes) -> float | None:
    """Return the mean acceptance length at which steps that cost this gain nothing;
    ``None`` if the drafter takes longer for prompts than a plain step, so that none
    does.

    A plain step must pay for what the drafter takes for the prompts of its token.
    """
    left = 1 - prompts.typical * (prompts.drafting - 1)
    if left <= 0:
        return None
    return step_cost / left


def estimate(
    length: float | None,
    drafted: float | None,
    batch: float | None,
    profile: CostProfile,
    length_error: float = 0.0,
    first_tokens: float = 0.0,
) -> Estimate:
    """Return the speedup of drafts of `drafted` tokens that emit `length` tokens.

    Args:
        length: mean acceptance length.
        drafted: mean draft length; K if drafts do not vary.
        batch: requests in the batch; at least 1 is assumed, because a draft belongs to
            a request.
        profile: what steps cost.
        length_error: standard error of the mean acceptance length, by the sample.
        first_tokens: of the tokens that no draft gave, the share that begin an answer,
            0 to 1.
    """
    if length is None or not drafted or batch is None:
        return Estimate()
    batch = max(1.0, batch)
    cost = profile.step_cost(drafted, batch)
    low_cost, high_cost = profile.cost_range(drafted, batch)
    prompts = profile.prompt_times(batch)
    ends = (prompts.low, prompts.high)
    of_decoding = length / cost
    # Cost and length are independent: their relative errors add up in quadrature.
    length_reach = Z * length_error / length
    reach_down = math.hypot(math.log(high_cost / cost), length_reach)
    reach_up = math.hypot(math.log(cost / low_cost), length_reach)
    lowest = of_decoding * math.exp(-reach_down)
    highest = min(of_decoding * math.exp(reach_up), length + Z * length_error)
    even = break_even_length(cost, prompts)
    even_ratio = (even - 1) / drafted if even is not None else None
    return Estimate(
        speedup=with_prompts(of_decoding, prompts.typical, prompts.drafting),
        speedup_low=min(
            with_prompts(lowest, share, prompts.drafting) for share in ends
        ),
        speedup_high=max(
            with_prompts(highest, share, prompts.drafting) for share in ends
        ),
        break_even_acceptance_length=even,
        break_even_acceptance_ratio=even_ratio,
        step_cost=cost,
        batch_size=batch,
        basis=profile.basis if profile.covers(batch) else Basis.MODELLED,
        undrafted_cost=profile.undrafted_cost(drafted, batch, first_tokens),
    )


class Return(Struct, frozen=True):
    """The published return on speculation.

    Attributes:
        benefit_tokens_per_second: further tokens per second, before overhead.
        cost_ratio: share of the machine that it takes: memory plus compute overhead.
        return_ratio: relative benefit over relative cost; below 1 it takes more than it
            gives. ``None`` where it costs nothing.
    """

    benefit_tokens_per_second: float | None = None
    cost_ratio: float | None = None
    return_ratio: float | None = None


def return_on_speculation(
    length: float,
    step_cost: float,
    memory_ratio: float,
    baseline_tokens_per_second: float,
) -> Return:
    """Return the return on speculation.

    Args:
        length: mean acceptance length, the published speedup.
        step_cost: time of a step with drafts in plain steps; what exceeds 1 is the
            overhead.
        memory_ratio: memory of the draft model over the memory of the GPUs, 0 to 1.
        baseline_tokens_per_second: throughput without speculation at the same load.
    """
    cost = memory_ratio + max(0.0, step_cost - 1)
    return Return(
        benefit_tokens_per_second=(length - 1) * baseline_tokens_per_second,
        cost_ratio=cost,
        return_ratio=(length - 1) / cost if cost > 0 else None,
    )
