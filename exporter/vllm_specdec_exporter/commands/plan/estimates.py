"""Estimates: memory for keys and values with and without the drafter, and the speedup
by batch size. Pure.

The KV budget is VRAM x gpu_memory_utilization - weights, so a draft model reduces it by
its size. Activations, CUDA graphs and memory of the driver (a few GB on each GPU) are
not counted. Weights and budget are assumed to split evenly over the GPUs (tensor
parallelism).
"""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from ...economics.architecture import Architecture
from ...economics.cost import CostProfile
from ...economics.model import Model, from_parameters
from ...economics.parameter_counts import (
    count_eagle,
    count_eagle3,
    count_medusa,
    count_mtp,
)
from ...economics.profiles import Hardware, for_method, hardware_profile
from ...economics.sizes import Precision
from ...economics.speedup import expected_tokens
from ...economics.statistics import Interval
from .question import Drafter, Method, PlannedLoad, Question


class MemoryBudget(Struct, frozen=True):
    """Memory for keys and values beside the weights.

    All but the budget are ``None`` if something they depend on is not known.
    """

    #: For keys and values; 0 or less: the weights alone do not fit.
    kv_budget_bytes: float
    kv_bytes_per_token: float | None = None  # of one token over all GPUs
    tokens: int | None = None
    requests: int | None = None  # requests of the given context that fit
    #: Whether the given batch fits, every request with its full context.
    fits: bool | None = None


class Memory(Struct, frozen=True):
    """Memory with and without the drafter."""

    total_bytes: float  # memory of all GPUs
    usable_bytes: float  # the part that vLLM may use
    target_weights_bytes: float
    target_share: float  # of all memory
    #: 0 for a drafter without weights, ``None`` if not known.
    draft_weights_bytes: float | None
    draft_share: float | None
    before: MemoryBudget  # budget without the drafter
    after: MemoryBudget | None  # budget with it, ``None`` if its weights are not known
    draft_kv_known: bool  # whether `after` includes the keys and values of the drafter

    @property
    def weights_with_drafter(self) -> float | None:
        """Bytes of both; ``None`` if those of the drafter are not known."""
        if self.draft_weights_bytes is None:
            return None
        return self.target_weights_bytes + self.draft_weights_bytes


def account(question: Question) -> Memory:
    """Return the memory without and with the drafter."""
    gpus = question.gpus
    target = question.target
    draft = question.draft
    target_kv = _kv_per_token(question, target.architecture)
    draft_kv: float | None = 0.0
    weights: float | None = 0.0
    if question.method.drafter is not Drafter.LOOKUP:
        draft_kv = _kv_per_token(question, _drafter_layers(question))
        weights = None if draft is None else draft.weight_bytes
    budget = gpus.usable - target.weight_bytes
    with_drafter = None
    if weights is not None:
        # A drafter of unknown dimensions counts as 0; `draft_kv_known` says so.
        kv = target_kv and target_kv + (draft_kv or 0.0)
        with_drafter = _budget(budget - weights, kv, question.load)
    return Memory(
        total_bytes=gpus.total,
        usable_bytes=gpus.usable,
        target_weights_bytes=target.weight_bytes,
        target_share=target.weight_bytes / gpus.total,
        draft_weights_bytes=weights,
        draft_share=None if weights is None else weights / gpus.total,
        before=_budget(budget, target_kv, question.load),
        after=with_drafter,
        draft_kv_known=draft_kv is not None,
    )


def _kv_per_token(
    question: Question, architecture: Architecture | None
) -> float | None:
    if architecture is None:
        return None
    values = architecture.kv_values_per_token(question.gpus.count)
    return values * question.kv_precision.bytes_per_parameter


def _drafter_layers(question: Question) -> Architecture | None:
    draft = question.draft
    if draft and draft.architecture:
        return draft.architecture
    target = question.target.architecture
    if question.method.drafter is Drafter.HEAD and target:
        # EAGLE and MTP add one layer of the target's dimensions; for heads without
        # attention (Medusa, MLP speculator) this is a slight overestimate.
        return target.one_layer()
    return None


def _budget(
    budget: float, bytes_per_token: float | None, load: PlannedLoad
) -> MemoryBudget:
    if bytes_per_token is None:
        # Without any memory nothing fits, whatever a token takes.
        return MemoryBudget(budget, fits=False if budget <= 0 else None)
    tokens = max(0, int(budget // bytes_per_token))
    return MemoryBudget(
        kv_budget_bytes=budget,
        kv_bytes_per_token=bytes_per_token,
        tokens=tokens,
        requests=None if load.context is None else tokens // load.context,
        fits=None if load.tokens is None else load.tokens <= tokens,
    )


#: Batch sizes of the table: doubling shows where a step turns from bound by memory to
#: bound by computing.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Assumption(Struct, frozen=True):
    """An assumed acceptance."""

    name: str  # ``given``, or ``cautious`` and ``good`` if none was given
    #: Probability that a drafted token is accepted if those before it were, 0 to 1.
    acceptance: float
    tokens: float  # tokens per step, 1 to 1 + K


class BatchRow(Struct, frozen=True):
    """One batch size."""

    batch: int  # requests in a step
    #: Time of a step with drafts over one without; also the tokens per step to break
    #: even.
    step_cost: float
    #: One for each assumption, with the uncertainty of the step's cost; below 1
    #: speculation loses.
    speedups: tuple[Interval, ...]


class SpeedupByBatch(Struct, frozen=True):
    """The speedup by batch size."""

    k: int  # number of speculative tokens in every step
    profile: str  # name of the cost profile
    provenance: str  # source of its numbers
    uncertainty: float  # expected relative error of a step's cost
    context: float  # assumed tokens of context per request
    assumptions: tuple[Assumption, ...]  # the acceptances
    rows: tuple[BatchRow, ...]  # one for each batch size


def look_ahead(question: Question) -> SpeedupByBatch:
    """Return the speedup for `BATCHES` and the planned batch, by default for the
    method's two assumed acceptances.
    """
    k = question.depth
    method = question.method
    if question.acceptance is None:
        acceptances = {"cautious": method.cautious, "good": method.good}
    else:
        acceptances = {"given": question.acceptance}
    assumptions = tuple(
        Assumption(name, acceptance, expected_tokens(acceptance, k))
        for name, acceptance in acceptances.items()
    )
    profile = _cost_profile(question).at_context(question.load.context)
    sizes = sorted({*BATCHES, question.load.batch or 1})
    return SpeedupByBatch(
        k=k,
        profile=profile.name,
        provenance=profile.provenance,
        uncertainty=profile.uncertainty,
        context=profile.context_tokens,
        assumptions=assumptions,
        rows=tuple(_row(profile, k, size, assumptions) for size in sizes),
    )


def _cost_profile(question: Question) -> CostProfile:
    """Return the cost profile of a method for the sizes of the models, on the hardware
    if it is known.

    The size ratio is that of the bytes read per step, because drafting and small
    batches are bound by memory bandwidth. Of a mixture of experts only the parameters
    per token count, which overestimates the cost in large batches.
    """
    method = question.method
    size_ratio: float | None = None
    draft_parameters: float | None = None
    if question.draft and method.drafter is Drafter.MODEL:
        size_ratio = (
            question.draft.active_weight_bytes / question.target.active_weight_bytes
        )
        draft_parameters = question.draft.parameters
    if question.hardware:
        profile = hardware_profile(
            for_method(method.name),
            Hardware(*question.hardware, question.target),
            method=method.name,
            draft_parameters=draft_parameters,
        )
        if profile:
            return profile
    return for_method(method.name, size_ratio and min(1.0, size_ratio))


def _row(
    profile: CostProfile, k: int, batch: int, assumptions: tuple[Assumption, ...]
) -> BatchRow:
    cost = profile.step_cost(k, batch)
    lowest, highest = profile.cost_range(k, batch)
    speedups = []
    for assumption in assumptions:
        tokens = assumption.tokens
        # The dearest step gives the lowest speedup.
        speedups.append(Interval(tokens / cost, tokens / highest, tokens / lowest))
    return BatchRow(batch, cost, tuple(speedups))


_COUNTS: Mapping[str, Callable[[Architecture, int], int]] = {
    "eagle": lambda target, _: count_eagle(target),
    "eagle3": lambda target, _: count_eagle3(target),
    "mtp": lambda target, _: count_mtp(target),
    "medusa": count_medusa,
}


def estimate_head(
    method: Method, target: Model, precision: Precision, k: int
) -> Model | None:
    """Return the heads of `method` for `target` by estimate, ``None`` where there is
    nothing to go by.

    With the dimensions of the target the estimate is closer. Medusa has a head for each
    of `k` tokens.
    """
    parameters = 0
    source = "estimated from the target's dimensions"
    if target.architecture is not None and method.name in _COUNTS:
        parameters = _COUNTS[method.name](target.architecture, k)
    if not parameters:
        if method.share is None:
            return None
        heads = k if method.per_token else 1
        parameters = round(method.share * target.parameters * heads)
        source = f"estimated ({method.share_source})"
    model = from_parameters(parameters, precision)
    return replace(model, source=source, estimated=True)
