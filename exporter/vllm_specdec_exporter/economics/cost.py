"""Cost profiles: the cost of a step with drafts, relative to a plain decode step of the
same batch.

A plain step reads the weights once, whatever the batch (`fixed`), computes one token
for every request and reads the context of each. Verifying K drafted tokens computes K
more tokens for every request and still reads the context once. Drafting has a cost per
step, a cost per position, because most drafters propose one token after another, and a
cost per token::

    plain(b)     = fixed + per_request * b + per_token * b           + per_context_token * context * b
    verify(k, b) = fixed + per_request * b + per_token * b * (k + 1) + per_context_token * context * b
    draft(k, b)  = draft.fixed + draft.per_position * k + draft.per_request * b + draft.per_token * b * k
                   + draft.per_context_token * context * b + draft.share_of_verification * verify(k, b)
    step_cost    = (verify + draft) / plain

which is the linear model of SmartSpec (Liu et al. 2024, arXiv 2406.14066). Only ratios leave this module, so
a profile may be in any unit of time. At small batches `fixed` dominates and verification is nearly free; at
large ones every rejected token costs as much as an accepted one gains. So break-even rises with the load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from ..config.thresholds import Thresholds
from .hardware import PLAIN, SHARED_ERROR, STEP, PhysicalModel, regime, widening

#: Size over the target's of the smallest usual draft models, for the interval if the
#: size is not known.
SMALLEST_DRAFT = 0.01
#: A calibrated profile is used for batch sizes and contexts up to this factor outside
#: the measured ones.
REACH = 1.5
#: Least uncertainty of a profile beyond what it was measured with: that of the shipped
#: one of a draft model.
_EXTRAPOLATED = 0.6
#: Largest uncertainty of a calibrated profile. Beyond it, even 1.5 times as fast, which
#: healthy speculation gains, cannot be told from a loss.
MAX_UNCERTAINTY = 0.5
#: Below this context, reading it takes so little of a step that its length does not
#: matter, in tokens.
_SHORT_CONTEXT = 1000.0


@dataclass(frozen=True, slots=True)
class TargetCost:
    """Time of the target model in a step, in the profile's unit of time; all from 0 up."""

    fixed: float  # of a step, whatever its batch; above 0
    per_token: float = 0.0  # for each token computed
    per_context_token: float = 0.0  # for each token of context that is attended to
    #: For each request in the batch, however many of its tokens are computed.
    per_request: float = 0.0


@dataclass(frozen=True, slots=True)
class DraftCost:
    """Time of drafting, in the profile's unit of time; all from 0 up."""

    fixed: float = 0.0  # of a step that drafts
    #: For each position, proposed one after another for the whole batch.
    per_position: float = 0.0
    per_request: float = 0.0  # for each request, however many tokens are drafted for it
    per_token: float = 0.0  # for each drafted token of each request
    per_context_token: float = 0.0  # for each token of context, once a step
    #: Share of the time of verification, for drafters measured relative to it.
    share_of_verification: float = 0.0
    #: Added to `per_position` for each unit of the draft's size over the target's.
    per_position_of_size: float = 0.0
    per_token_of_size: float = 0.0  # added to `per_token` likewise


#: Least share of a request's steps that must have drafts, so that the mean step shows
#: those.
MIN_DRAFTING_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class ObservedStep:
    """The mean step of an engine that drafts, by its own inter-token latency."""

    seconds: float  # of a step, above 0
    batch: float  # requests in the batch, from 1 up
    drafted: float  # drafted tokens per draft, above 0
    share: float  # of a request's steps, those with drafts, 0 to 1
    emitted: float  # tokens of each request, from 1 up
    prompts_per_token: float  # prompt tokens for each generated one, from 0 up


class Basis(StrEnum):
    """Where a speedup comes from, from the most to the least trusted."""

    MEASURED = "measured"  # against a baseline or replicas without speculation
    CALIBRATED = "calibrated"  # the cost of a step was measured on this machine
    # a step with drafts is the engine's own, a plain one is modelled
    OBSERVED = "observed"
    MODELLED = "modelled"


@dataclass(frozen=True, slots=True)
class CostProfile:
    """The cost of speculation on one kind of deployment."""

    name: str  # as `--cost.profile` and the `cost_profile` label have it
    target: TargetCost  # time of the target model
    draft: DraftCost = DraftCost()  # time of drafting
    #: The methods, as vLLM calls them, that this profile is chosen for.
    methods: tuple[str, ...] = ()
    #: Tokens of context per request; assumed until the engine shows them.
    context_tokens: float = 1000.0
    #: Size of the draft model over the target's, where the costs depend on it and it is
    #: known.
    size_ratio: float | None = None
    #: What is assumed where it is not known; the interval then covers all sizes.
    typical_size_ratio: float = 0.0
    typical_k: int = 3  # K if it is not known
    #: Relative error of a step's cost that is rarely exceeded; of known hardware, that
    #: at one request.
    uncertainty: float = 0.3
    #: Largest batch whose cost is modelled; beyond it, the interval has no end.
    #: ``None`` for every batch.
    max_batch: float | None = None
    #: `calibrated` if it was measured on the machine that it is used for, else
    #: `modelled`.
    basis: Basis = Basis.MODELLED
    #: The least and the most requests in a batch that it was measured with, if it was.
    batches: tuple[float, float] | None = None
    #: The least and the most tokens of context per request that it was measured with.
    contexts: tuple[float, float] | None = None
    #: Factor on the cost of a step with drafts beyond a plain one; differs from 1 if a
    #: measured speedup contradicts the profile.
    correction: float = 1.0
    #: Factor on what a step takes longer in a larger batch; differs from 1 if the
    #: engine's own steps show another slope.
    load: float = 1.0
    #: Whether the default thresholds are computed from break-even (`thresholds_for`),
    #: instead of taken from the published rubric, which is meant for draft models of
    #: about 1:9. So it is with all built-in methods but `draft_model` and `unknown`.
    cheap: bool = False
    provenance: str = ""  # source of the numbers
    #: The model of known hardware, used instead of `target` and `draft`.
    physical: PhysicalModel | None = None
    #: Whether steps without drafts run a drafter's first pass, as those of K=0 do.
    idles: bool = False
    #: The option that the model of the hardware lacks; empty if there is none.
    lacking: str = ""
    #: The least and the largest cost over the estimated one; by default as
    #: `uncertainty` says.
    errors: tuple[float, float] | None = None
    #: Why the engine's own steps contradict the model of them, empty if they do not: a
    #: larger K is then not advised, because its cost would come from that model.
    contradiction: str = ""
    #: The time of drafting over that of verification as the engine measures it, and the
    #: K that it was measured with; used instead of `draft`. It is taken to grow in
    #: proportion to K.
    measured_draft: tuple[float, float] | None = None

    def step_cost(self, k: float, batch: float, size: float | None = None) -> float:
        """Return the cost of a step that drafts, in plain steps of the same batch; 1
        for `k` = 0.

        `k` is drafted tokens per request, of which a mean need not be whole, `batch`
        the requests in the step, and `size` another one of the draft model over the
        target's. Raises ValueError for a negative k, or a batch below 1.
        """
        if k < 0 or batch < 1:
            raise ValueError(
                f"k lies from 0 up and the batch from 1 up, not {k:g} and {batch:g}"
            )
        if k == 0:
            return 1.0
        plain, drafting = self.times(k, batch, size)
        if self.load != 1:
            one_plain, one_drafting = self.times(k, 1, size)
            plain = one_plain + (plain - one_plain) * self.load
            drafting = one_drafting + (drafting - one_drafting) * self.load
        return 1 + (drafting / plain - 1) * self.correction

    def idle_cost(self, batch: float) -> float:
        """Return the cost of a step with K=0 in a schedule: a drafter that is a model
        has a first pass.
        """
        plain, verify, _ = self._parts(1, batch)
        extra = self.times(1, batch)[1] - plain
        share = 1 - (verify - plain) / extra if extra > 0 else 0.0
        return 1 + (self.step_cost(1, batch) - 1) * share

    @property
    def _size(self) -> float:
        return self.size_ratio or self.typical_size_ratio

    def times(
        self, k: float, batch: float, size: float | None = None
    ) -> tuple[float, float]:
        """Return the times of a step without and with drafts in the profile's unit,
        uncorrected.
        """
        plain, verify, drafting = self._parts(k, batch, size)
        if self.measured_draft is not None:
            share, measured_k = self.measured_draft
            drafting = share * self._parts(measured_k, batch, size)[1] * k / measured_k
        return plain, verify + drafting

    def _parts(
        self, k: float, batch: float, size: float | None = None
    ) -> tuple[float, float, float]:
        """Return the times of a plain step, of verification, and of drafting by the
        model.
        """
        size = self._size if size is None else size
        if (physical := self.physical) is not None:
            context = self.context_tokens
            verify = physical.verification_seconds(k, batch, context)
            return (
                physical.plain_seconds(batch, context),
                verify,
                physical.draft_seconds(k, batch, context),
            )
        target = self.target
        draft = self.draft
        context = self.context_tokens * batch
        same = (
            target.fixed
            + target.per_request * batch
            + target.per_context_token * context
        )
        verify = same + target.per_token * batch * (k + 1)
        drafting = (
            draft.fixed
            + (draft.per_position + draft.per_position_of_size * size) * k
            + draft.per_request * batch
            + (draft.per_token + draft.per_token_of_size * size) * batch * k
            + draft.per_context_token * context
            + draft.share_of_verification * verify
        )
        return same + target.per_token * batch, verify, drafting

    def cost_range(self, k: float, batch: float) -> tuple[float, float]:
        """Return the least (at least that of a plain step) and the largest cost within
        the uncertainty.
        """
        if k == 0:
            return 1.0, 1.0
        if (
            self.max_batch is not None
            and batch > self.max_batch
            and self.basis is Basis.MODELLED
        ):
            return 1.0, math.inf
        smallest = largest = self._size
        if self.size_ratio is None and (
            self.draft.per_position_of_size or self.draft.per_token_of_size
        ):
            smallest = SMALLEST_DRAFT
            largest = 1.0
        least = self.step_cost(k, batch, smallest)
        most = self.step_cost(k, batch, largest)
        low, high = self._errors(batch)
        return max(1.0, least * low), most * high

    def _errors(self, batch: float) -> tuple[float, float]:
        """Return the least and the largest cost over the estimated one."""
        if self.errors:
            return self.errors
        modelled = self.physical and self.basis is Basis.MODELLED
        if self.covers(batch):
            uncertainty = self.uncertainty
        else:
            uncertainty = max(self.uncertainty, _EXTRAPOLATED)
        factor = math.pow(1 + uncertainty, widening(batch) if modelled else 1)
        return 1 / factor, factor

    def covers(self, batch: float) -> bool:
        """Return whether batch size and context are within reach of those that were
        measured, if any were.
        """
        context = max(self.context_tokens, _SHORT_CONTEXT)
        least, most = (
            max(end, _SHORT_CONTEXT) for end in self.contexts or (context, context)
        )
        fewest, largest = self.batches or (batch, batch)
        return (
            fewest / REACH <= batch <= largest * REACH
            and least / REACH <= context <= most * REACH
        )

    def at_context(self, tokens: float | None) -> CostProfile:
        """Return the profile for requests of this context, unchanged if it is not
        known.
        """
        if tokens is None:
            return self
        return replace(self, context_tokens=tokens)

    def with_measured_draft(self, share: float | None, k: float | None) -> CostProfile:
        """Return the profile with drafting as the engine measures it, unless it was
        calibrated there.
        """
        if not share or not k or self.basis is not Basis.MODELLED:
            return self
        return replace(self, measured_draft=(share, k))

    def with_observed_step(
        self, step: ObservedStep, error: tuple[float, float] | None = None
    ) -> CostProfile:
        """Return the profile with the cost that the engine's own step shows, if the
        plain one is modelled.

        The time of a step that the engine's inter-token latency gives is taken as it
        is. Only the plain step is modelled, with its own `error`, by default that of
        the hardware. What the model of a mixture of experts lacks lengthens both steps,
        so a part of it corrects the plain one (`SHARED_ERROR`). A step that is shorter
        than any plain one by the model shows another hardware: then nothing is known of
        the cost. Prompts computed in the same steps make both longer, in proportion to
        what they emit. How many of their tokens the prefix cache had is not known: from
        none to all.
        """
        physical = self.physical
        if (
            physical is None
            or self.basis is not Basis.MODELLED
            or step.share < MIN_DRAFTING_SHARE
        ):
            return self
        prompts = step.batch * step.prompts_per_token * physical.prompt_token_seconds()
        decoding, drafting = self.times(step.drafted, step.batch)
        where = regime(physical.target)
        power = SHARED_ERROR[where]
        (low, high) = error or PLAIN[where]
        drafted = self.step_cost(step.drafted, step.batch) - 1
        undrafted = self.idle_cost(step.batch) - 1 if self.idles else 0.0
        mean_extra = step.share * drafted + (1 - step.share) * undrafted
        mean_step = step.share * drafting + (1 - step.share) * decoding * (
            1 + undrafted
        )
        least_plain = decoding * low * math.pow(step.seconds / mean_step, power)
        if step.seconds < least_plain:
            took, fastest = (
                f"{1000 * time:.1f} ms" for time in (step.seconds, least_plain)
            )
            words = (
                f"a step takes {took}, by the model of the hardware a plain one at "
                f"least {fastest}"
            )
            return replace(self, errors=(0.0, math.inf), contradiction=words)

        def cost_with(prompts: float, factor: float = 1.0) -> float:
            shared = math.pow(
                step.seconds / (mean_step + prompts * step.emitted), power
            )
            # A step that verifies drafts takes at least as long as a plain one.
            plain = min(decoding * shared, step.seconds) * factor + prompts
            return 1 + max(0.0, step.seconds / plain - 1) * drafted / mean_extra

        if drafted <= 0:
            return self
        cost = cost_with(prompts / 2)
        least = cost_with(prompts, high)
        most = cost_with(0, low)
        return replace(
            self,
            correction=self.correction * (cost - 1) / drafted,
            errors=(least / cost, most / cost),
            basis=Basis.OBSERVED,
            contradiction=_contradiction(
                step, mean_step, mean_step + prompts * step.emitted, cost
            ),
        )

    def sized(self, ratio: float) -> CostProfile:
        """Return the profile for a draft of `ratio` times the target's size; ValueError
        unless in (0, 1].
        """
        if not 0 < ratio <= 1:
            raise ValueError(
                "a draft model's size over the target's lies above 0 and at most "
                f"at 1, not {ratio:g}"
            )
        name = self.name.partition(" 1:")[0]
        return replace(self, name=f"{name} 1:{1 / ratio:.3g}", size_ratio=ratio)


#: A cheap drafter's acceptance is optimal from this speedup on, at one request per
#: batch.
OPTIMAL_SPEEDUP = 1.5
#: Mean acceptance lengths that a method usually reaches at the least, as published.
_USUAL_LENGTH = {
    "eagle": 2.0,
    "eagle3": 2.0,
    "ngram": 1.5,
    "mlp_speculator": 1.5,
    "suffix": 2.0,
}


def thresholds_for(
    profile: CostProfile, k: int | None = None, method: str = ""
) -> Thresholds:
    """Return the default thresholds: as published, or from break-even where the profile
    is cheap.

    `k` is by default the profile's typical K; `method` is empty if not known.
    """
    defaults = Thresholds()
    if method in _USUAL_LENGTH:
        defaults = defaults.with_values(
            {"usual_mean_acceptance_length": _USUAL_LENGTH[method]}
        )
    if not profile.cheap:
        return defaults
    k = k or profile.typical_k
    cost = profile.step_cost(k, 1)
    first = profile.step_cost(1, 1)
    last = cost - profile.step_cost(k - 1, 1) if k > 1 else first - 1
    gain = defaults.beneficial_speedup

    def ratio(speedup: float) -> float:
        return (speedup * cost - 1) / k

    lengths = {
        "poor_mean_acceptance_length": cost,
        "disable_mean_acceptance_length": cost,
        "healthy_mean_acceptance_length": gain * cost,
        "optimal_mean_acceptance_length": OPTIMAL_SPEEDUP * cost,
    }
    ratios = {
        "poor_acceptance_ratio": ratio(1.0),
        "disable_acceptance_ratio": ratio(1.0),
        "poor_request_acceptance_ratio": ratio(1.0),
        "break_even_acceptance_ratio": ratio(gain),
        "healthy_acceptance_ratio": ratio(gain),
        "optimal_acceptance_ratio": ratio(OPTIMAL_SPEEDUP),
        "poor_position_0_acceptance_ratio": first - 1,
        "healthy_position_0_acceptance_ratio": gain * first - 1,
        "healthy_last_position_acceptance_ratio": last,
        # Whether deep positions pay is the question of K, which advice answers.
        "poor_position_decay_ratio": 0.0,
        "optimal_position_decay_ratio": defaults.poor_position_decay_ratio,
    }
    values = lengths | {
        name: min(1.0, max(0.0, value)) for name, value in ratios.items()
    }
    return defaults.with_values(
        {name: round(value, 4) for name, value in values.items()}
    )


def basis(profile: CostProfile, k: int | None = None) -> str:
    """Return the source of the default thresholds."""
    if not profile.cheap:
        return "published rubric"
    return f"break-even of {profile.name} at K={k or profile.typical_k}, one request"


def _contradiction(step: ObservedStep, least: float, most: float, cost: float) -> str:
    """Return how the step contradicts its modelled time, without prompts and with all,
    or its cost.
    """
    took, modelled = (
        f"{1000 * time:.1f} ms"
        for time in (step.seconds, min(most, max(least, step.seconds)))
    )
    if not least / STEP <= step.seconds <= most * STEP:
        return (
            f"a step takes {took}, by the model of the hardware {modelled}: the "
            "engine's own time counts"
        )
    plain = (
        f"a step takes {took}, no longer than a plain one by the model of the hardware"
    )
    if cost <= 1:
        return f"{plain}: what drafts cost is not known"
    return ""
