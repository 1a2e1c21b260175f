"""Estimates: memory for keys and values with and without the drafter, and the speedup
by batch size.

The KV budget is VRAM x gpu_memory_utilization - weights, so a draft model reduces it by
its size. Activations, CUDA graphs and memory of the driver (a few GB on each GPU) are
not counted. Weights and budget are assumed to split evenly over the GPUs (tensor
parallelism).

Methods are rows of `methods.toml`. The assumed acceptances are for planning only: they
span what was published, or are marked as guesses. A measurement on the traffic to be
served replaces them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import msgspec

from ...economics.architecture import Architecture
from ...economics.cost import CostProfile
from ...economics.hardware import Machine
from ...economics.model import (
    Model,
    count_eagle,
    count_eagle3,
    count_medusa,
    count_mtp,
    from_parameters,
)
from ...economics.profiles import Hardware, for_method, hardware_profile
from ...economics.sizes import Precision
from ...economics.speedup import expected_tokens
from ...economics.statistics import Interval


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of one engine."""

    count: int  # from 1 up
    memory_bytes: float  # of each
    #: Share that vLLM may use, above 0 and at most 1 (``--gpu-memory-utilization``).
    utilization: float

    @property
    def total(self) -> float:
        """Bytes of all GPUs."""
        return self.count * self.memory_bytes

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
        if self.context is None or self.batch is None:
            return None
        return self.context * self.batch


@dataclass(frozen=True, slots=True)
class MemoryBudget:
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


@dataclass(frozen=True, slots=True)
class Memory:
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


def account(
    target: Model,
    draft: Model | None,
    drafter: Drafter,
    gpus: Gpus,
    load: PlannedLoad,
    kv_bytes: float,
) -> Memory:
    """Return the memory without and with the drafter; a cached number has `kv_bytes`,
    such as 2.
    """

    def per_token(architecture: Architecture | None) -> float | None:
        if architecture:
            return architecture.kv_values_per_token(gpus.count) * kv_bytes
        return None

    target_kv = per_token(target.architecture)
    draft_kv: float | None = 0.0
    weights: float | None = 0.0
    if drafter is not Drafter.LOOKUP:
        draft_kv = per_token(_drafter_layers(target, draft, drafter))
        weights = None if draft is None else draft.weights
    both = None if target_kv is None else target_kv + (draft_kv or 0.0)
    budget = gpus.usable - target.weights
    return Memory(
        total_bytes=gpus.total,
        usable_bytes=gpus.usable,
        target_weights_bytes=target.weights,
        target_share=target.weights / gpus.total,
        draft_weights_bytes=weights,
        draft_share=None if weights is None else weights / gpus.total,
        before=_room(budget, target_kv, load),
        after=None if weights is None else _room(budget - weights, both, load),
        draft_kv_known=draft_kv is not None,
    )


def _drafter_layers(
    target: Model, draft: Model | None, drafter: Drafter
) -> Architecture | None:
    if (
        drafter is Drafter.HEAD
        and target.architecture
        and not (draft and draft.architecture)
    ):
        # EAGLE and MTP add one layer of the target's dimensions; for heads without
        # attention (Medusa, MLP speculator) this is a slight overestimate.
        return target.architecture.one_layer()
    if draft:
        return draft.architecture
    return None


def _room(
    budget: float, bytes_per_token: float | None, load: PlannedLoad
) -> MemoryBudget:
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
    #: Probability that a drafted token is accepted if those before it were, 0 to 1.
    acceptance: float
    tokens: float  # tokens per step, 1 to 1 + K


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch size."""

    batch: int  # requests in a step
    #: Time of a step with drafts over one without; also the tokens per step to break
    #: even.
    step_cost: float
    #: One for each assumption, with the uncertainty of the step's cost; below 1
    #: speculation loses.
    speedups: tuple[Interval, ...]


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


def choose_profile(
    method: Method,
    target: Model,
    draft: Model | None,
    hardware: tuple[str, Machine] | None,
) -> CostProfile:
    """Return the cost profile of a method for the sizes of the models, on the hardware
    if it is known.

    The size ratio is that of the bytes read per step, because drafting and small
    batches are bound by memory bandwidth. Of a mixture of experts only the parameters
    per token count, which overestimates the cost in large batches.
    """
    drafting = draft if method.drafter is Drafter.MODEL else None
    if drafting:
        ratio = min(1.0, drafting.active_weights / target.active_weights)
    else:
        ratio = None
    profile = for_method(method.name, ratio)
    if hardware is None:
        return profile
    name, machine = hardware
    parameters = drafting.parameters if drafting else None
    deployed = Hardware(name, machine, target)
    plain = for_method(method.name)
    return (
        hardware_profile(
            plain, deployed, method=method.name, draft_parameters=parameters
        )
        or profile
    )


def look_ahead(
    method: Method,
    profile: CostProfile,
    k: int,
    acceptance: float | None,
    batch: int | None,
) -> SpeedupByBatch:
    """Return the speedup for `BATCHES` and `batch`, by default for the method's two
    assumed acceptances.
    """
    if acceptance is None:
        named = {"cautious": method.cautious, "good": method.good}
    else:
        named = {"given": acceptance}
    assumptions = tuple(
        Assumption(name, a, expected_tokens(a, k)) for name, a in named.items()
    )
    rows = tuple(
        _row(profile, k, size, assumptions) for size in sorted({*BATCHES, batch or 1})
    )
    return SpeedupByBatch(
        k=k,
        profile=profile.name,
        provenance=profile.provenance,
        uncertainty=profile.uncertainty,
        context=profile.context_tokens,
        assumptions=assumptions,
        rows=rows,
    )


def _row(
    profile: CostProfile, k: int, batch: int, assumptions: tuple[Assumption, ...]
) -> BatchRow:
    cost = profile.step_cost(k, batch)
    (least, most) = profile.cost_range(k, batch)
    speedups = (
        Interval(one.tokens / cost, one.tokens / most, one.tokens / least)
        for one in assumptions
    )
    return BatchRow(batch, cost, tuple(speedups))


class Drafter(StrEnum):
    """What does the drafting."""

    MODEL = "model"
    """A model of its own."""
    HEAD = "head"
    """Layers trained for this very target."""
    LOOKUP = "lookup"
    """A search in what was written before; no weights."""


class Method(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A speculation method."""

    name: str  # as in vLLM's ``--speculative-config``
    drafter: Drafter
    cautious: float  # per-token acceptance to assume where little is known, 0 to 1
    good: float  # per-token acceptance where all goes well, 0 to 1
    acceptance_source: str  # where these two come from
    shallowest: int = 1  # the least K that is usual
    deepest: int = 0  # the greatest K that is usual; 0 where no range is published
    depth_source: str = ""  # where the range comes from
    #: Parameters of the heads over the target's where no size is given; ``None``: not
    #: known.
    share: float | None = None
    share_source: str = ""  # where the share comes from
    per_token: bool = False  # whether `share` is for each of K heads
    named: bool = True  # whether vLLM wants the drafter's name under ``model``


#: By name.
METHODS: Mapping[str, Method] = {
    name: msgspec.convert({"name": name, **row}, Method)
    for name, row in tomllib.loads(
        Path(__file__).with_name("methods.toml").read_text("utf-8")
    ).items()
}


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
    count = 0
    source = "estimated from the target's dimensions"
    if target.architecture is not None and method.name in _COUNTS:
        count = _COUNTS[method.name](target.architecture, k)
    if not count:
        if method.share is None:
            return None
        count = round(method.share * target.parameters * (k if method.per_token else 1))
        source = f"estimated ({method.share_source})"
    return replace(from_parameters(count, precision), source=source, estimated=True)
