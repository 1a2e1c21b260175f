"""The time of a decoding step from the hardware and the shape of the models (a roofline model).

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

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .hardware import Accelerator
    from .shape import Drafter, Shape

#: Exponent of the smooth maximum of reading and multiplying.
_SHARPNESS = 4.0


@dataclass(frozen=True, slots=True)
class Overheads:
    """What an engine takes beside the work, fitted to published measurements; seconds, and shares of 1.

    Attributes:
        bandwidth: share of the memory bandwidth that is reached.
        throughput: share of the dense throughput that is reached.
        throughput_4bit: the same for weights of 4 bits that are unpacked to 16.
        step: of a step.
        layer: of a layer in a step.
        request: of a request in a step: scheduling, sampling, output.
        speculation: of a step that drafts: preparation, rejection sampling.
        speculation_request: the same for each request in the batch.
        draft_pass: of launching one pass of the drafter.
        verification: times a pass over several tokens of each request takes, beside what is computed:
            attention and multiplication are less efficient than for one token.
        lookup: of one request's search, for drafters without weights.
        message: of one message between the GPUs of tensor parallelism, of which a layer has two.
        routing: exponent of the tokens of one request: they share experts, so `t` of them touch as many as
            `t ** routing` independent ones.
        dated: times that engines before vLLM 0.11 and SGLang 0.5 take for `speculation`,
            `speculation_request` and `draft_pass`: they prepared every draft on the CPU.
    """

    bandwidth: float = 0.81
    throughput: float = 0.763
    throughput_4bit: float = 0.3
    step: float = 1.86e-3
    layer: float = 1.07e-5
    request: float = 1.03e-5
    speculation: float = 0.429e-3
    speculation_request: float = 2.85e-5
    draft_pass: float = 0.149e-3
    verification: float = 1.04
    lookup: float = 2.0e-5
    message: float = 1.0e-5
    routing: float = 0.601
    dated: float = 3.87


def _overlapped(one: float, other: float) -> float:
    """Return the time of two activities that overlap: a smooth maximum."""
    return float((one**_SHARPNESS + other**_SHARPNESS) ** (1 / _SHARPNESS))


@dataclass(frozen=True, slots=True)
class Machine:
    """One or several GPUs that a model is spread over by tensor parallelism."""

    accelerator: Accelerator
    count: int = 1
    overheads: Overheads = Overheads()

    def step_seconds(self, shape: Shape, tokens: float, requests: float, context: float) -> float:
        """Return the time of one pass of a model, without the engine's own overhead of a step.

        Args:
            shape: the model.
            tokens: computed in the pass, over all requests.
            requests: in the batch.
            context: tokens that each request attends to.
        """
        over, gpu = self.overheads, self.accelerator
        bandwidth = gpu.bandwidth * self.count * over.bandwidth
        share = (
            over.throughput_4bit
            if shape.bytes_per_parameter < 1 and shape.precision == "fp16"
            else over.throughput
        )
        throughput = gpu.operations_per_second(shape.precision) * self.count * share
        independent = requests * (tokens / requests) ** over.routing
        reading = shape.weights(independent) / bandwidth
        computing = 2 * shape.active * tokens / throughput
        work = _overlapped(reading, computing)
        attention = requests * context * shape.kv_values * shape.kv_bytes / bandwidth
        return work + attention + shape.layers * over.layer + self._messages(shape, tokens)

    def _messages(self, shape: Shape, tokens: float) -> float:
        """Return the time of the messages between GPUs: two all-reduces of the hidden state a layer."""
        if self.count == 1:
            return 0.0
        size = 2 * tokens * shape.hidden * 2 * (self.count - 1) / self.count
        return 2 * shape.layers * (self.overheads.message + size / self.accelerator.link)


@dataclass(frozen=True, slots=True)
class PhysicalModel:
    """The cost of speculation on a machine.

    Attributes:
        machine: the GPUs.
        target: the model that is served.
        drafter: what drafts.
        dated: whether the engine is older than vLLM 0.11 or SGLang 0.5.
    """

    machine: Machine
    target: Shape
    drafter: Drafter
    dated: bool = False

    def plain_seconds(self, batch: float, context: float) -> float:
        """Return the time of a step without drafts."""
        over = self.machine.overheads
        return (
            over.step + batch * over.request + self.machine.step_seconds(self.target, batch, batch, context)
        )

    def drafting_seconds(self, k: float, batch: float, context: float) -> float:
        """Return the time of a step with `k` drafted tokens for each request, verification included."""
        over = self.machine.overheads
        verify = self.machine.step_seconds(self.target, batch * (k + 1), batch, context) * over.verification
        preparing = (over.speculation + batch * over.speculation_request) * self._age
        return over.step + batch * over.request + verify + preparing + self._draft(k, batch, context)

    @property
    def _age(self) -> float:
        return self.machine.overheads.dated if self.dated else 1.0

    def _draft(self, k: float, batch: float, context: float) -> float:
        over, shape = self.machine.overheads, self.drafter.shape
        if shape is None:
            return over.lookup * batch
        if self.drafter.parallel:
            return self._pass(shape, batch * k, batch, context)
        # The first pass also reads what the last step accepted; the others have one token for each request.
        return self._pass(shape, batch * 2, batch, context) + (k - 1) * self._pass(
            shape, batch, batch, context
        )

    def _pass(self, shape: Shape, tokens: float, batch: float, context: float) -> float:
        """Return the time of one pass of the drafter."""
        overhead = self.machine.overheads.draft_pass * self._age
        return overhead + self.machine.step_seconds(shape, tokens, batch, context)

    def step_cost(self, k: float, batch: float, context: float) -> float:
        """Return the cost of a step that drafts, in plain steps of the same batch; 1 for `k` = 0."""
        if k == 0:
            return 1.0
        return self.drafting_seconds(k, batch, context) / self.plain_seconds(batch, context)
