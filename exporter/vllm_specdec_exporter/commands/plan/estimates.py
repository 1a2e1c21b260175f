"""Estimates: memory for keys and values with and without the drafter, and the speedup by batch size.

The KV budget is VRAM x gpu_memory_utilization - weights, so a draft model reduces it by its size.
Activations, CUDA graphs and memory of the driver (a few GB on each GPU) are not counted. Weights and budget
are assumed to split evenly over the GPUs (tensor parallelism).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...economics.profiles import Hardware, fit, for_method, hardware_profile
from ...economics.speedup import expected_tokens
from .methods import Drafter

if TYPE_CHECKING:
    from ...economics.cost import CostProfile
    from ...economics.hardware import Machine
    from ...economics.model import Model
    from .methods import Method


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of one engine."""

    count: int  # from 1 up
    memory: float  # bytes of each
    utilization: float  # share that vLLM may use, above 0 and at most 1 (``--gpu-memory-utilization``)

    @property
    def total(self) -> float:
        """Bytes of all GPUs."""
        return self.count * self.memory

    @property
    def usable(self) -> float:
        """Bytes that vLLM may use."""
        return self.total * self.utilization


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """The planned load; ``None`` if not given."""

    context: int | None = None  # tokens of a request, prompt and response together
    batch: int | None = None  # concurrent requests

    @property
    def tokens(self) -> int | None:
        """Tokens in the cache if every request has its full context."""
        return None if self.context is None or self.batch is None else self.context * self.batch


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Memory for keys and values beside the weights.

    All but the budget are ``None`` if something they depend on is not known.
    """

    budget: float  # bytes for keys and values; 0 or less: the weights alone do not fit
    bytes_per_token: float | None = None  # bytes of one token over all GPUs
    tokens: int | None = None
    requests: int | None = None  # requests of the given context that fit
    fits: bool | None = None  # whether the given batch fits, every request with its full context


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory with and without the drafter, in bytes."""

    total: float  # memory of all GPUs
    usable: float  # the part that vLLM may use
    target: float
    draft: float | None  # weights of the drafter, 0 for one without weights, ``None`` if not known
    before: MemoryBudget  # budget without the drafter
    after: MemoryBudget | None  # budget with it, ``None`` if its weights are not known
    draft_kv_known: bool  # whether `after` includes the keys and values of the drafter

    @property
    def target_share(self) -> float:
        """Weights of the target as a share of all memory."""
        return self.target / self.total

    @property
    def draft_share(self) -> float | None:
        """Weights of the drafter as a share of all memory."""
        return None if self.draft is None else self.draft / self.total


def account(
    target: Model, draft: Model | None, drafter: Drafter, gpus: Gpus, load: PlannedLoad, kv_bytes: float
) -> Memory:
    """Return the memory without and with the drafter; a cached number has `kv_bytes`, such as 2."""
    target_kv = kv_per_token(target, gpus, kv_bytes)
    draft_kv = _drafter_kv(target, draft, drafter, gpus, kv_bytes)
    weights = 0.0 if drafter is Drafter.LOOKUP else None if draft is None else draft.weights
    both = None if target_kv is None else target_kv + (draft_kv or 0.0)
    budget = gpus.usable - target.weights
    before = _room(budget, target_kv, load)
    after = None if weights is None else _room(budget - weights, both, load)
    return Memory(
        total=gpus.total,
        usable=gpus.usable,
        target=target.weights,
        draft=weights,
        before=before,
        after=after,
        draft_kv_known=draft_kv is not None,
    )


def kv_per_token(model: Model, gpus: Gpus, kv_bytes: float) -> float | None:
    """Return the bytes of one token's keys and values over all GPUs, ``None`` without the dimensions."""
    if model.architecture is None:
        return None
    return model.architecture.kv_values_per_token(gpus.count) * kv_bytes


def _drafter_kv(
    target: Model, draft: Model | None, drafter: Drafter, gpus: Gpus, kv_bytes: float
) -> float | None:
    if drafter is Drafter.LOOKUP:
        return 0.0
    if draft is not None and draft.architecture is not None:
        return kv_per_token(draft, gpus, kv_bytes)
    if drafter is Drafter.HEAD and target.architecture is not None:
        # EAGLE and MTP add one layer of the target's dimensions; for heads without attention (Medusa, MLP
        # speculator) this is a slight overestimate.
        return target.architecture.one_layer().kv_values_per_token(gpus.count) * kv_bytes
    return None


def _room(budget: float, bytes_per_token: float | None, load: PlannedLoad) -> MemoryBudget:
    if bytes_per_token is None:
        return MemoryBudget(budget, fits=False if budget <= 0 else None)
    tokens = max(0, int(budget // bytes_per_token))
    requests = None if load.context is None else tokens // load.context
    fits = None if load.tokens is None else load.tokens <= tokens
    return MemoryBudget(budget, bytes_per_token, tokens, requests, fits)


#: Batch sizes of the table.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Assumption:
    """An assumed acceptance."""

    name: str  # ``given``, or ``cautious`` and ``good`` if none was given
    acceptance: float  # probability that a drafted token is accepted if those before it were, 0 to 1
    tokens: float  # tokens per step, 1 to 1 + K


@dataclass(frozen=True, slots=True)
class Range:
    """A speedup with the uncertainty of the step's cost; below 1 speculation loses."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch size."""

    batch: int  # requests in a step
    step_cost: float  # time of a step with drafts over one without; also the tokens per step to break even
    speedups: tuple[Range, ...]  # one for each assumption

    @property
    def low(self) -> float:
        """The lowest speedup of all assumptions."""
        return min(speedup.low for speedup in self.speedups)

    @property
    def high(self) -> float:
        """The highest speedup of all assumptions."""
        return max(speedup.high for speedup in self.speedups)


@dataclass(frozen=True, slots=True)
class SpeedupByBatch:
    """The speedup by batch size."""

    k: int  # number of speculative tokens in every step
    profile: str  # name of the cost profile
    provenance: str  # source of its numbers
    uncertainty: float  # expected relative error of a step's cost
    context: float  # assumed tokens of context per request
    assumptions: tuple[Assumption, ...]  # the acceptances
    rows: tuple[BatchRow, ...]  # one for each batch size

    def at(self, batch: int) -> BatchRow:
        """Return the row of `batch`, which must be one of the table."""
        return next(row for row in self.rows if row.batch == batch)


def choose_profile(
    method: Method,
    target: Model,
    draft: Model | None,
    named: CostProfile | None,
    hardware: tuple[str, Machine] | None = None,
) -> CostProfile:
    """Return the cost profile of a method for the sizes of the models, or `named` fitted to them.

    The size ratio is that of the bytes read per step, because drafting and small batches are bound by memory
    bandwidth. Of a mixture of experts only the parameters per token count, which overestimates the cost in
    large batches.
    """
    if hardware is not None and named is None:
        name, machine = hardware
        found = hardware_profile(
            for_method(method.name),
            Hardware(name, machine, target),
            method=method.name,
            draft_parameters=draft.parameters if draft and method.drafter is Drafter.MODEL else None,
        )
        if found is not None:
            return found
    ratio = None
    if draft is not None and method.drafter is Drafter.MODEL:
        ratio = min(1.0, draft.active_weights / target.active_weights)
    return for_method(method.name, ratio) if named is None else fit(named, ratio)


def usual_depth(method: Method) -> int:
    """Return the K to plan with if none is given."""
    return for_method(method.name).typical_k


def look_ahead(
    method: Method, profile: CostProfile, k: int, acceptance: float | None, batch: int | None
) -> SpeedupByBatch:
    """Return the speedup for `BATCHES` and `batch`, by default for the method's two assumed acceptances."""
    named = (
        {"cautious": method.cautious, "good": method.good} if acceptance is None else {"given": acceptance}
    )
    assumptions = tuple(Assumption(name, a, expected_tokens(a, k)) for name, a in named.items())
    rows = tuple(_row(profile, k, size, assumptions) for size in sorted({*BATCHES, batch or 1}))
    return SpeedupByBatch(
        k=k,
        profile=profile.name,
        provenance=profile.provenance,
        uncertainty=profile.uncertainty,
        context=profile.context_tokens,
        assumptions=assumptions,
        rows=rows,
    )


def _row(profile: CostProfile, k: int, batch: int, assumptions: tuple[Assumption, ...]) -> BatchRow:
    cost, (least, most) = profile.step_cost(k, batch), profile.cost_range(k, batch)
    ranges = (Range(one.tokens / most, one.tokens / cost, one.tokens / least) for one in assumptions)
    return BatchRow(batch, cost, tuple(ranges))
