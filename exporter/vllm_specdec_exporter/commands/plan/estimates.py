"""Memory arithmetic: what the weights leave for keys and values, before and after the drafter.

The KV budget is VRAM x gpu_memory_utilization - weights, so a draft model shrinks it one for one. Published
arithmetic; activations, CUDA graphs and what the GPU's driver takes come off as well (a few GB on each GPU)
and are not counted here. Weights and budget are taken to split evenly over the GPUs (tensor parallelism).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...economics.profiles import fit, for_method
from ...economics.speedup import expected_tokens
from .methods import Drafter

if TYPE_CHECKING:
    from ...economics.cost import CostProfile
    from .methods import Method
    from .model import ModelSize


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that one engine is spread over.

    Attributes:
        count: from 1 up.
        memory: bytes of each.
        utilization: share that vLLM may use, above 0 and at most 1 (``--gpu-memory-utilization``).
    """

    count: int
    memory: float
    utilization: float

    @property
    def total(self) -> float:
        """Bytes of all together."""
        return self.count * self.memory

    @property
    def usable(self) -> float:
        """Bytes that vLLM may use."""
        return self.total * self.utilization


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """What is to be served; ``None`` where it was not said.

    Attributes:
        context: tokens that a request holds, prompt and answer together.
        batch: requests at the same time.
    """

    context: int | None = None
    batch: int | None = None

    @property
    def tokens(self) -> int | None:
        """Tokens to hold if every request is at its longest."""
        return None if self.context is None or self.batch is None else self.context * self.batch


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """What fits beside the weights.

    Attributes:
        budget: bytes for keys and values; 0 or less: the weights alone do not fit.
        bytes_per_token: that one token takes on all GPUs together.
        tokens: that fit.
        requests: of the given context that fit.
        fits: whether the given batch fits, every request at its longest.

    All but the budget are ``None`` where something they need is not known.
    """

    budget: float
    bytes_per_token: float | None = None
    tokens: int | None = None
    requests: int | None = None
    fits: bool | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """The whole account, in bytes.

    Attributes:
        total: memory of all GPUs.
        usable: what vLLM may use of it.
        target: weights of the target.
        draft: weights of the drafter, 0 for one without weights, ``None`` where not known.
        before: room without the drafter.
        after: room with it, ``None`` where its weights are not known.
        draft_kv_known: whether the keys and values of the drafter are in `after`.
    """

    total: float
    usable: float
    target: float
    draft: float | None
    before: MemoryBudget
    after: MemoryBudget | None
    draft_kv_known: bool

    @property
    def target_share(self) -> float:
        """Weights of the target over all memory."""
        return self.target / self.total

    @property
    def draft_share(self) -> float | None:
        """Weights of the drafter over all memory."""
        return None if self.draft is None else self.draft / self.total


def account(
    target: ModelSize,
    draft: ModelSize | None,
    drafter: Drafter,
    gpus: Gpus,
    load: PlannedLoad,
    kv_bytes: float,
) -> Memory:
    """Return what fits on `gpus` without and with the drafter.

    Args:
        target: the model that is served.
        draft: the drafter, ``None`` where it has no weights or their size is not known.
        drafter: what kind it is.
        gpus: what there is.
        load: what is to be served.
        kv_bytes: bytes of one cached number, such as 2.
    """
    target_kv = kv_per_token(target, gpus, kv_bytes)
    draft_kv = _drafter_kv(target, draft, drafter, gpus, kv_bytes)
    weights = 0.0 if drafter is Drafter.LOOKUP else None if draft is None else draft.weights
    both = None if target_kv is None else target_kv + (draft_kv or 0.0)
    budget = gpus.usable - target.weights
    return Memory(
        total=gpus.total,
        usable=gpus.usable,
        target=target.weights,
        draft=weights,
        before=_room(budget, target_kv, load),
        after=None if weights is None else _room(budget - weights, both, load),
        draft_kv_known=draft_kv is not None,
    )


def kv_per_token(model: ModelSize, gpus: Gpus, kv_bytes: float) -> float | None:
    """Return the bytes of one token's keys and values on all GPUs, ``None`` without the dimensions."""
    if model.architecture is None:
        return None
    return model.architecture.kv_values_per_token(gpus.count) * kv_bytes


def _drafter_kv(
    target: ModelSize, draft: ModelSize | None, drafter: Drafter, gpus: Gpus, kv_bytes: float
) -> float | None:
    if drafter is Drafter.LOOKUP:
        return 0.0
    if draft is not None and draft.architecture is not None:
        return kv_per_token(draft, gpus, kv_bytes)
    if drafter is Drafter.HEAD and target.architecture is not None:
        # EAGLE and MTP add one layer of the target's own dimensions; for heads without attention (Medusa,
        # MLP speculator) this is a little too much.
        return target.architecture.one_layer().kv_values_per_token(gpus.count) * kv_bytes
    return None


def _room(budget: float, bytes_per_token: float | None, load: PlannedLoad) -> MemoryBudget:
    if bytes_per_token is None:
        return MemoryBudget(budget, fits=False if budget <= 0 else None)
    tokens = max(0, int(budget // bytes_per_token))
    return MemoryBudget(
        budget,
        bytes_per_token,
        tokens,
        None if load.context is None else tokens // load.context,
        None if load.tokens is None else load.tokens <= tokens,
    )


#: Batch sizes of the table.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Assumption:
    """An acceptance that the table is reckoned with.

    Attributes:
        name: ``given``, or ``cautious`` and ``good`` where none was.
        acceptance: chance that a drafted token is accepted if those before it were, 0 to 1.
        tokens: emitted per step, 1 to 1 + K.
    """

    name: str
    acceptance: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Range:
    """A speedup with the uncertainty of the step's cost; 1 is neither gain nor loss."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch size.

    Attributes:
        batch: requests in a step.
        step_cost: time of a step that drafts over one that does not; also the tokens a step must emit to
            break even.
        speedups: one for each assumption.
    """

    batch: int
    step_cost: float
    speedups: tuple[Range, ...]

    @property
    def low(self) -> float:
        """The least speedup of all assumptions."""
        return min(speedup.low for speedup in self.speedups)

    @property
    def high(self) -> float:
        """The greatest speedup of all assumptions."""
        return max(speedup.high for speedup in self.speedups)


@dataclass(frozen=True, slots=True)
class SpeedupByBatch:
    """The speedup over batch sizes.

    Attributes:
        k: number of speculative tokens, every step drafting that many.
        profile: name of the cost profile.
        provenance: where its numbers come from.
        uncertainty: relative error to expect of a step's cost.
        context: tokens of context that the profile takes a request to hold.
        assumptions: the acceptances.
        rows: one for each batch size.
    """

    k: int
    profile: str
    provenance: str
    uncertainty: float
    context: float
    assumptions: tuple[Assumption, ...]
    rows: tuple[BatchRow, ...]

    def at(self, batch: int) -> BatchRow:
        """Return the row of `batch`, which must be one of the table."""
        return next(row for row in self.rows if row.batch == batch)


def choose_profile(
    method: Method, target: ModelSize, draft: ModelSize | None, named: CostProfile | None
) -> CostProfile:
    """Return the cost profile of a method, fitted to the sizes of the models.

    The ratio is that of the bytes a step reads: drafting and small batches are bound by memory bandwidth. Of
    a mixture of experts only what one token passes through counts, which is cautious for large batches.

    Args:
        method: the method.
        target: the model that is served.
        draft: the drafter, where its size is known.
        named: a profile to take instead of the method's.
    """
    ratio = None
    if draft is not None and method.drafter is Drafter.MODEL:
        ratio = min(1.0, draft.active_weights / target.active_weights)
    return for_method(method.name, ratio) if named is None else fit(named, ratio)


def usual_depth(method: Method) -> int:
    """Return the K to plan with where none is given."""
    return for_method(method.name).typical_k


def look_ahead(
    method: Method, profile: CostProfile, k: int, acceptance: float | None, batch: int | None
) -> SpeedupByBatch:
    """Return the speedup over `BATCHES` and `batch`.

    Args:
        method: the method, for its assumed acceptances.
        profile: what a step costs, at the context that it is for.
        k: number of speculative tokens, from 1 up.
        acceptance: expected per token, 0 to 1; without it the method's cautious and good ones are taken.
        batch: a batch size beside those of the table.
    """
    named = (
        {"cautious": method.cautious, "good": method.good} if acceptance is None else {"given": acceptance}
    )
    assumptions = tuple(Assumption(name, a, expected_tokens(a, k)) for name, a in named.items())
    return SpeedupByBatch(
        k=k,
        profile=profile.name,
        provenance=profile.provenance,
        uncertainty=profile.uncertainty,
        context=profile.context_tokens,
        assumptions=assumptions,
        rows=tuple(_row(profile, k, size, assumptions) for size in sorted({*BATCHES, batch or 1})),
    )


def _row(profile: CostProfile, k: int, batch: int, assumptions: tuple[Assumption, ...]) -> BatchRow:
    cost = profile.step_cost(k, batch)
    return BatchRow(
        batch,
        cost,
        tuple(_range(assumption.tokens, cost, profile.uncertainty) for assumption in assumptions),
    )


def _range(tokens: float, cost: float, uncertainty: float) -> Range:
    # A step that drafts and verifies is never cheaper than one that does neither.
    cheapest = max(1.0, cost * (1 - uncertainty))
    return Range(tokens / (cost * (1 + uncertainty)), tokens / cost, tokens / cheapest)
