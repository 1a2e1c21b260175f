"""Cost profiles: the cost of a step with drafts, relative to a plain decode step of the
same batch.

A plain step reads the weights once, whatever the batch (`fixed`), computes one token
for every request and reads the context of each. Verifying K drafted tokens computes K
more tokens for every request and still reads the context once. Drafting has a cost per
step, a cost per position, because most drafters propose one token after another, and a
cost per token::

    plain(b)     = fixed + per_request * b + per_token * b
                   + per_context_token * context * b
    verify(k, b) = fixed + per_request * b + per_token * b * (k + 1)
                   + per_context_token * context * b
    draft(k, b)  = draft.fixed + draft.per_position * k
                   + draft.per_request * b + draft.per_token * b * k
                   + draft.per_context_token * context * b
                   + draft.share_of_verification * verify(k, b)
    step_cost    = (verify + draft) / plain

which is the linear model of SmartSpec (Liu et al. 2024, arXiv 2406.14066). Only ratios
leave this module, so a profile may be in any unit of time. At small batches `fixed`
dominates and verification is nearly free; at large ones every rejected token costs as
much as an accepted one gains. So break-even rises with the load.
"""

from __future__ import annotations

import math
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from ..config.thresholds import Thresholds
from .hardware import PROMPTS, PhysicalModel, context_error, widening

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
#: Least share of what drafts cost by the model of the hardware: even where little is
#: known of it, they are not free.
LEAST_EXTRA = 1 / 16
#: Below this context, reading it takes so little of a step that its length does not
#: matter, in tokens.
_SHORT_CONTEXT = 1000.0


class TargetCost(Struct, frozen=True):
    """Time of the target model in a step, in the profile's unit; all from 0 up."""

    fixed: float  # of a step, whatever its batch; above 0
    per_token: float = 0.0  # for each token computed
    per_context_token: float = 0.0  # for each token of context that is attended to
    #: For each request in the batch, however many of its tokens are computed.
    per_request: float = 0.0

    def step_time(
        self, tokens_per_request: float, batch: float, context_tokens: float
    ) -> float:
        """Return the time of a step that computes these tokens for each request."""
        return (
            self.fixed
            + self.per_request * batch
            + self.per_context_token * (context_tokens * batch)
            + self.per_token * batch * tokens_per_request
        )


class DraftCost(Struct, frozen=True):
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

    @property
    def depends_on_size(self) -> bool:
        """Whether the costs depend on the size of the draft model."""
        return bool(self.per_position_of_size or self.per_token_of_size)


class Basis(StrEnum):
    """Where a speedup comes from, from the most to the least trusted."""

    MEASURED = "measured"  # against a baseline or replicas without speculation
    CALIBRATED = "calibrated"  # the cost of a step was measured on this machine
    # a step with drafts is the engine's own, a plain one is modelled
    OBSERVED = "observed"
    MODELLED = "modelled"


class PromptTimes(Struct, frozen=True):
    """What prompts add to a step without drafts, in plain steps; with drafts it is
    `drafting` times as much for each generated token.
    """

    low: float = 0.0
    typical: float = 0.0
    high: float = 0.0
    drafting: float = 1.0  # from 1 up: the drafter computes prompts too

    @property
    def drafted(self) -> float:
        """The typical time with drafts."""
        return self.typical * self.drafting


class CostProfile(Struct, frozen=True):
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
    #: Whether the step of a first token drafts for the next one, and that of a last
    #: token for one that never comes: an answer then has a drafting more than drafts.
    drafts_ahead: bool = False
    #: The option that the model of the hardware lacks; empty if there is none.
    lacking: str = ""
    #: The least and the largest cost over the estimated one; by default as
    #: `uncertainty` says.
    errors: tuple[float, float] | None = None
    #: The least and the most prompt tokens that are computed for each generated one;
    #: counts with a model of the hardware.
    prompts_per_token: tuple[float, float] = (0.0, 0.0)
    #: Why the engine's own steps contradict the model of them, empty if they do not: a
    #: larger K is then not advised, because its cost would come from that model.
    contradiction: str = ""
    #: The time of drafting over that of verification as the engine measures it, and the
    #: K that it was measured with; used instead of `draft`. It is taken to grow in
    #: proportion to K.
    measured_draft: tuple[float, float] | None = None

    def step_cost(self, k: float, batch: float) -> float:
        """Return the cost of a step that drafts, in plain steps of the same batch; 1
        for `k` = 0.

        `k` is drafted tokens per request, of which a mean need not be whole, and
        `batch` the requests in the step. Raises ValueError for a negative k, or a batch
        below 1.
        """
        if k < 0 or batch < 1:
            raise ValueError(
                f"k lies from 0 up and the batch from 1 up, not {k:g} and {batch:g}"
            )
        if k == 0:
            return 1.0
        plain, drafting = self.step_times(k, batch)
        if self.load != 1:
            plain_alone, drafting_alone = self.step_times(k, 1)
            plain = plain_alone + (plain - plain_alone) * self.load
            drafting = drafting_alone + (drafting - drafting_alone) * self.load
        return 1 + (drafting / plain - 1) * self.correction

    def undrafted_cost(self, k: float, batch: float, first_tokens: float) -> float:
        """Return the mean cost of the steps that verify no draft, of which a share of
        `first_tokens` give the first token of an answer, 0 to 1.

        An engine that drafts ahead has `k` drafted in those: in each step the next
        draft is made, so that an answer has one drafting more than verified drafts.
        """
        idle = self.idle_cost(batch) if self.idles else 1.0
        if not self.drafts_ahead or not first_tokens:
            return idle
        ahead = 1 + self._drafting_cost(k, batch)
        return idle + first_tokens * (ahead - idle)

    def idle_cost(self, batch: float) -> float:
        """Return the cost of a step with K=0 in a schedule: a drafter that is a model
        has a first pass.
        """
        return 1 + self._drafting_cost(1, batch)

    def _drafting_cost(self, k: float, batch: float) -> float:
        """Return what drafting alone adds to a step, in plain steps."""
        plain, drafting = self.step_times(k, batch)
        extra = drafting - plain
        if extra <= 0:
            return 0.0
        share = 1 - (self._verification_time(k, batch) - plain) / extra
        return (self.step_cost(k, batch) - 1) * share

    def step_times(self, k: float, batch: float) -> tuple[float, float]:
        """Return the times of a step without and with drafts in the profile's unit,
        uncorrected.
        """
        if self.physical is not None:
            plain = self.physical.plain_seconds(batch, self.context_tokens)
        else:
            plain = self.target.step_time(1, batch, self.context_tokens)
        verification = self._verification_time(k, batch)
        return plain, verification + self._draft_time(k, batch, verification)

    def _verification_time(self, k: float, batch: float) -> float:
        if self.physical is not None:
            return self.physical.verification_seconds(k, batch, self.context_tokens)
        return self.target.step_time(k + 1, batch, self.context_tokens)

    def _draft_time(self, k: float, batch: float, verification: float) -> float:
        if self.measured_draft is not None:
            share, measured_k = self.measured_draft
            return share * self._verification_time(measured_k, batch) * k / measured_k
        if self.physical is not None:
            return self.physical.draft_seconds(k, batch, self.context_tokens)
        draft = self.draft
        size = self.size_ratio or self.typical_size_ratio
        return (
            draft.fixed
            + (draft.per_position + draft.per_position_of_size * size) * k
            + draft.per_request * batch
            + (draft.per_token + draft.per_token_of_size * size) * batch * k
            + draft.per_context_token * (self.context_tokens * batch)
            + draft.share_of_verification * verification
        )

    def cost_range(self, k: float, batch: float) -> tuple[float, float]:
        """Return the least (at least that of a plain step) and the largest cost within
        the uncertainty.
        """
        if k == 0:
            return 1.0, 1.0
        modelled = self.basis is Basis.MODELLED
        if modelled and self.max_batch is not None and batch > self.max_batch:
            return 1.0, math.inf
        if self.size_ratio is None and self.draft.depends_on_size:
            lowest = replace(self, size_ratio=SMALLEST_DRAFT).step_cost(k, batch)
            highest = replace(self, size_ratio=1.0).step_cost(k, batch)
        else:
            lowest = highest = self.step_cost(k, batch)
        low_error, high_error = self._errors(batch)
        least_cost = 1.0
        if modelled and self.physical is not None and self.errors is None:
            least_cost += (lowest - 1) * LEAST_EXTRA
        return max(least_cost, lowest * low_error), highest * high_error

    def _errors(self, batch: float) -> tuple[float, float]:
        """Return the least and the largest cost over the estimated one."""
        if self.errors:
            return self.errors
        uncertainty = self.uncertainty
        if not self.covers(batch):
            uncertainty = max(uncertainty, _EXTRAPOLATED)
        factor = 1 + uncertainty
        if self.physical is not None and self.basis is Basis.MODELLED:
            of_context = math.exp(context_error(self.context_tokens))
            factor = math.pow(factor, widening(batch)) * of_context
        return 1 / factor, factor

    def covers(self, batch: float) -> bool:
        """Return whether batch size and context are within reach of those that were
        measured, if any were.
        """
        context = max(self.context_tokens, _SHORT_CONTEXT)
        shortest, longest = self.contexts or (context, context)
        fewest, largest = self.batches or (batch, batch)
        return (
            fewest / REACH <= batch <= largest * REACH
            and max(shortest, _SHORT_CONTEXT) / REACH <= context
            and context <= max(longest, _SHORT_CONTEXT) * REACH
        )

    def at_context(self, tokens: float | None) -> CostProfile:
        """Return the profile for requests of this context, unchanged if it is not
        known.
        """
        if tokens is None:
            return self
        return replace(self, context_tokens=tokens)

    def with_prompts(self, prompts_per_token: tuple[float, float]) -> CostProfile:
        """Return the profile for that many prompt tokens, the least and the most, for
        each generated one.
        """
        return replace(self, prompts_per_token=prompts_per_token)

    def prompt_times(self, batch: float) -> PromptTimes:
        """Return the time of the prompts in a step without drafts, in plain steps."""
        if self.physical is None:
            return PromptTimes()
        plain = self.physical.plain_seconds(batch, self.context_tokens)
        seconds = self.physical.prompt_token_seconds()
        share = batch * seconds / plain
        fewest, most = self.prompts_per_token
        return PromptTimes(
            low=fewest / PROMPTS * share,
            typical=(fewest + most) / 2 * share,
            high=most * PROMPTS * share,
            drafting=1 + self.physical.draft_prompt_token_seconds() / seconds,
        )

    def with_measured_draft(self, share: float | None, k: float | None) -> CostProfile:
        """Return the profile with drafting as the engine measures it, unless it was
        calibrated there.
        """
        if not share or not k or self.basis is not Basis.MODELLED:
            return self
        return replace(self, measured_draft=(share, k))

    def sized(self, ratio: float) -> CostProfile:
        """Return the profile for a draft of `ratio` times the target's size; ValueError
        unless in (0, 1].
        """
        if not 0 < ratio <= 1:
            raise ValueError(
                "a draft model's size over the target's lies above 0 and at most at 1, "
                f"not {ratio:g}"
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
        usual = {"usual_mean_acceptance_length": _USUAL_LENGTH[method]}
        defaults = defaults.with_values(usual)
    if not profile.cheap:
        return defaults
    k = k or profile.typical_k
    cost = profile.step_cost(k, 1)
    cost_of_one = profile.step_cost(1, 1)
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
        "poor_position_0_acceptance_ratio": cost_of_one - 1,
        "healthy_position_0_acceptance_ratio": gain * cost_of_one - 1,
        "healthy_last_position_acceptance_ratio": cost - profile.step_cost(k - 1, 1),
        # Whether deep positions pay is the question of K, which advice answers.
        "poor_position_decay_ratio": 0.0,
        "optimal_position_decay_ratio": defaults.poor_position_decay_ratio,
    }
    values = {name: round(length, 4) for name, length in lengths.items()}
    for name, value in ratios.items():
        values[name] = round(min(1.0, max(0.0, value)), 4)
    return defaults.with_values(values)


def thresholds_source(profile: CostProfile, k: int | None = None) -> str:
    """Return the source of the default thresholds, in words."""
    if not profile.cheap:
        return "published rubric"
    return f"break-even of {profile.name} at K={k or profile.typical_k}, one request"
