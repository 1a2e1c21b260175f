"""Known hardware: the time of a decoding step from data sheets and the models (a roofline model).

A step reads the weights that its tokens touch and the keys and values of each request, and multiplies.
Reading and multiplying overlap, so the longer of the two counts; overheads of the engine come on top::

    weights(t) = bytes read by every token + bytes of all experts * (1 - (1 - used / experts) ** t)
    step(t)    = overhead + layers * per_layer + norm(weights(t) / bandwidth, 2 * active * t / throughput)
                 + requests * (per_request + context * bytes per token / bandwidth)
    cost       = (step(requests * (K + 1)) + drafting) / step(requests)

with `t` tokens in the step. `1 - (1 - used / experts) ** t` is the share of experts that t independent tokens
are expected to touch: why verification costs a mixture of experts more than a dense model. The norm is a
smooth maximum: near the ridge neither limit is reached. Williams, Waterman, Patterson, "Roofline" (2009);
for decoding, Pope et al., "Efficiently Scaling Transformer Inference" (2022, arXiv 2211.05102).

The overheads and efficiencies are fitted to published measurements: docs/reference/estimate-accuracy.md.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .model import EAGLE3_VOCABULARY, Model
from .sizes import BF16

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHARPNESS = 4.0  # exponent of the smooth maximum of reading and multiplying
_VOCABULARY = 128_000  # rows of the output layer of a usual target
_PARALLEL_LAYERS = 5  # layers of drafters that propose all positions in one pass (DFlash has 5)


class HardwareError(ValueError):
    """Unknown hardware. The message is one line with what is allowed."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One GPU by its data sheet (hardware.toml)."""

    name: str  # as `--cost.hardware` has it
    bandwidth: float  # of its memory, in bytes per second
    throughput: Mapping[str, float] = field(hash=False)  # dense operations per second, by precision
    link: float  # bytes per second to another GPU of the same server
    memory: float  # in bytes
    source: str  # the data sheet

    def operations_per_second(self, precision: str) -> float:
        """Return the dense throughput of multiplications in `precision`, or in the next wider one it has."""
        order = ("fp4", "fp8", "fp16") if precision.startswith("fp") else ("int8", "fp16")
        usable = order[order.index(precision) :] if precision in order else ("fp16",)
        return next(self.throughput[name] for name in usable if name in self.throughput)


@lru_cache(maxsize=1)
def accelerators() -> Mapping[str, Accelerator]:
    """Return the known accelerators by name."""
    text = Path(__file__).with_name("hardware.toml").read_text("utf-8")
    return {
        name: Accelerator(
            name=name,
            bandwidth=entry["bandwidth"] * 1e9,
            throughput={key: entry[key] * 1e12 for key in ("fp16", "fp8", "int8", "fp4") if key in entry},
            link=entry["link"] * 1e9,
            memory=entry["memory"] * 1e9,
            source=entry["source"],
        )
        for name, entry in tomllib.loads(text)["accelerators"].items()
    }


@dataclass(frozen=True, slots=True)
class Overheads:
    """Overheads of an engine, fitted to published measurements; seconds, and shares of 1."""

    bandwidth: float = 0.81  # share of the memory bandwidth that is reached
    throughput: float = 0.763  # share of the dense throughput that is reached
    throughput_4bit: float = 0.3  # the same for weights of 4 bits that are unpacked to 16
    step: float = 1.86e-3  # of a step
    layer: float = 1.07e-5  # of a layer in a step
    request: float = 1.03e-5  # of a request in a step: scheduling, sampling, output
    speculation: float = 0.429e-3  # of a step that drafts: preparation, rejection sampling
    speculation_request: float = 2.85e-5  # the same for each request in the batch
    draft_pass: float = 0.149e-3  # of launching one pass of the drafter
    #: Factor of a pass over several tokens of each request: attention and multiplication are less efficient
    #: than for one token.
    verification: float = 1.04
    lookup: float = 2.0e-5  # of one request's search, for drafters without weights
    message: float = 1.0e-5  # of one message between the GPUs of tensor parallelism, of which a layer has two
    #: Exponent of the tokens of one request: they share experts, so `t` of them touch as many as
    #: `t ** routing` independent ones.
    routing: float = 0.601
    #: Factor of `speculation`, `speculation_request` and `draft_pass` in engines before vLLM 0.11 and SGLang
    #: 0.5, which prepared every draft on the CPU.
    dated: float = 3.87


@dataclass(frozen=True, slots=True)
class Machine:
    """One or several GPUs; a model is spread over them by tensor parallelism."""

    accelerator: Accelerator
    count: int = 1
    overheads: Overheads = Overheads()

    def pass_seconds(self, model: Model, tokens: float, requests: float, context: float) -> float:
        """Return the time of one pass of target or drafter, without the engine's own overhead of a step.

        `tokens` are computed in the pass, over all requests; each request attends to `context` tokens.
        """
        over, gpu, precision = self.overheads, self.accelerator, model.precision
        bandwidth = gpu.bandwidth * self.count * over.bandwidth
        unpacked = precision.bytes_read < 1 and precision.multiplied == "fp16"
        share = over.throughput_4bit if unpacked else over.throughput
        throughput = gpu.operations_per_second(precision.multiplied) * self.count * share
        independent = requests * (tokens / requests) ** over.routing
        reading = model.bytes_read(independent) / bandwidth
        computing = 2 * model.multiplied * tokens / throughput
        work = (reading**_SHARPNESS + computing**_SHARPNESS) ** (1 / _SHARPNESS)
        attention = requests * context * model.kv_values * model.kv_bytes / bandwidth
        return float(work) + attention + model.layers * over.layer + self._messages(model, tokens)

    def _messages(self, model: Model, tokens: float) -> float:
        """Return the time of the messages between GPUs: two all-reduces of the hidden state a layer."""
        if self.count == 1:
            return 0.0
        size = 2 * tokens * model.hidden * 2 * (self.count - 1) / self.count
        return 2 * model.layers * (self.overheads.message + size / self.accelerator.link)


def parse_machine(text: str) -> tuple[str, Machine]:
    """Return name and machine of ``h100`` or, for tensor parallelism, ``4xh100``; else HardwareError."""
    match = re.fullmatch(r"(?:(\d{1,3})x)?([a-z0-9][a-z0-9.-]*)", text.strip().lower().replace("_", "-"))
    known = accelerators()
    if match is None or match[2] not in known or match[1] == "0":
        raise HardwareError(
            f"allowed: an accelerator, or COUNTxNAME such as 4xh100; known: {', '.join(known)}"
        )
    count = int(match[1] or 1)
    return (f"{count}x{match[2]}" if count > 1 else match[2]), Machine(known[match[2]], count)


@dataclass(frozen=True, slots=True)
class DraftModel:
    """What drafts: a model, ``None`` for a search in the text; whether one pass proposes all positions."""

    model: Model | None = None
    parallel: bool = False


def usual_drafter(method: str, target: Model, draft: Model | None = None) -> DraftModel | None:
    """Return the usual drafter of a method, ``None`` if it is not known; `draft_model` needs `draft`."""
    match method:
        case "draft_model":
            return None if draft is None else DraftModel(draft)
        case "ngram" | "ngram_gpu" | "suffix":
            return DraftModel(None)
        case "eagle3":
            return DraftModel(_head(target, 1, EAGLE3_VOCABULARY))
        case "eagle":
            return DraftModel(_head(target, 1, _VOCABULARY))
        case "dflash" | "dspark" | "parallel":
            return DraftModel(_head(target, _PARALLEL_LAYERS, _VOCABULARY), parallel=True)
        case "medusa":
            return DraftModel(_head(target, 0, 4 * _VOCABULARY), parallel=True)
        case "mlp_speculator":
            return DraftModel(_head(target, 0, _VOCABULARY))
        case _ if method == "mtp" or method.endswith("_mtp"):
            return DraftModel(_one_layer(target))
    return None


def _head(target: Model, layers: int, vocabulary: int) -> Model:
    """Return a head of dense decoder layers (14 hidden² parameters, as Llama's) with an output layer."""
    parameters = 14 * layers * target.hidden**2 + vocabulary * target.hidden
    return Model(
        parameters=parameters,
        active_parameters=parameters,
        precision=target.precision if target.precision.bytes_per_parameter > 2 else BF16,
        layers=layers,
        hidden=target.hidden,
        kv_values=layers * target.kv_values / target.layers,
    )


def _one_layer(target: Model) -> Model:
    """Return a layer of the target with its experts, and an output layer (multi-token prediction)."""
    layers, routed = target.layers, target.routed / target.layers
    return replace(
        target,
        parameters=target.dense / layers + routed + _VOCABULARY * target.hidden,
        routed=routed,
        looked_up=0.0,
        layers=1,
        kv_values=target.kv_values / layers,
    )


@dataclass(frozen=True, slots=True)
class PhysicalModel:
    """The cost of speculation on a machine."""

    machine: Machine  # the GPUs
    target: Model  # the model that is served
    drafter: DraftModel  # what drafts
    dated: bool = False  # whether the engine is older than vLLM 0.11 or SGLang 0.5

    def plain_seconds(self, batch: float, context: float) -> float:
        """Return the time of a step without drafts."""
        over = self.machine.overheads
        return (
            over.step + batch * over.request + self.machine.pass_seconds(self.target, batch, batch, context)
        )

    def verification_seconds(self, k: float, batch: float, context: float) -> float:
        """Return the time of a step with `k` drafted tokens for each request, without that of drafting."""
        over, age = self.machine.overheads, self._age
        verify = self.machine.pass_seconds(self.target, batch * (k + 1), batch, context) * over.verification
        preparing = (over.speculation + batch * over.speculation_request) * age
        return over.step + batch * over.request + verify + preparing

    @property
    def _age(self) -> float:
        return self.machine.overheads.dated if self.dated else 1.0

    def draft_seconds(self, k: float, batch: float, context: float) -> float:
        """Return the time of drafting in such a step."""
        over, model = self.machine.overheads, self.drafter.model
        if model is None:
            return over.lookup * batch

        def one_pass(tokens: float) -> float:
            return over.draft_pass * self._age + self.machine.pass_seconds(model, tokens, batch, context)

        if self.drafter.parallel:
            return one_pass(batch * k)
        # The first pass also reads what the last step accepted; the others have one token for each request.
        return one_pass(batch * 2) + (k - 1) * one_pass(batch)
