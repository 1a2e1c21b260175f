"""Known hardware: the time of a decoding step from data sheets and the models (a
roofline model).

A step reads the weights that its tokens touch and the keys and values of each request,
and multiplies. Reading and multiplying overlap, so the longer of the two counts;
overheads of the engine come on top::

    weights(t) = bytes read by every token
                 + bytes of all experts * (1 - (1 - used / experts) ** t)
    step(t)    = overhead + layers * per_layer
                 + norm(weights(t) / bandwidth, 2 * active * t / throughput)
                 + requests * per_request + context(t)
    cost       = (step(requests * (K + 1)) + drafting) / step(requests)

with `t` tokens in the step. `1 - (1 - used / experts) ** t` is the share of experts
that t independent tokens are expected to touch: why verification costs a mixture of
experts more than a dense model. The norm is a smooth maximum: near the ridge neither
limit is reached. `context(t)` is the time of reading keys and values: at the memory's
bandwidth for one token of each request. For several, most kernels read the context of a
request and head in one block after another, each at one multiprocessor's share of the
bandwidth. Williams, Waterman, Patterson, "Roofline" (2009); for decoding, Pope et al.,
"Efficiently Scaling Transformer Inference" (2022, arXiv 2211.05102).

The overheads and efficiencies are fitted to published measurements:
docs/reference/estimate-accuracy.md.
"""

import math
import re
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from .model import Model
from .parameter_counts import EAGLE3_VOCABULARY
from .sizes import BF16, Accelerator, HardwareError, accelerators, own_accelerator

_SHARPNESS = 4.0  # exponent of the smooth maximum of reading and multiplying
#: Layers of drafters that propose all positions in one pass (DFlash has 5).
_PARALLEL_LAYERS = 5
#: Heads of a usual Medusa drafter, each with an output layer.
_MEDUSA_HEADS = 4
#: Bandwidth up to which GPUs are connected by PCIe: that of PCIe 5.0 with 16 lanes, in
#: bytes.
_PCIE = 64e9


class Overheads(Struct, frozen=True):
    """Overheads of an engine, fitted to published measurements; seconds, and shares of
    1.
    """

    bandwidth: float = 0.81  # share of the memory bandwidth that is reached
    #: The same in reading weights of fewer than 16 bits, which have scales.
    bandwidth_quantized: float = 0.649
    #: The same in reading the experts that a batch has chosen.
    bandwidth_quantized_experts: float = 0.335
    throughput: float = 0.763  # share of the dense throughput that is reached
    #: The same for weights of 4 bits that are unpacked to 16.
    throughput_4bit: float = 0.377
    step: float = 0.00126  # of a step
    layer: float = 9.27e-06  # of a layer in a step
    #: More of a layer with experts: choosing them, sorting tokens by them.
    experts_layer: float = 1e-05
    request: float = 8.81e-06  # of a request in a step: scheduling, sampling, output
    #: Of a step that drafts: preparation, rejection sampling.
    speculation: float = 0.000429
    speculation_request: float = 4.62e-05  # the same for each request in the batch
    draft_pass: float = 0.000124  # of launching one pass of the drafter
    #: Factor of a pass over several tokens of each request: attention and
    #: multiplication are less efficient than for one token.
    verification: float = 1.09
    lookup: float = 2.03e-05  # of one request's search, for drafters without weights
    #: Of one message between the GPUs of tensor parallelism, of which a layer has two.
    message: float = 9.63e-06
    #: The same over PCIe: NCCL's all-gather takes 14 us for one row and four GPUs, of
    #: which an all-reduce has two (flashinfer pull request 5023); vLLM's own all-reduce
    #: needs NVLink for more than two (its 56128).
    message_pcie: float = 2.54e-05
    #: Factor of a prompt's token over its multiplications alone: attention over the
    #: prompt, and steps that are longer because one of their requests has a prompt.
    prompt: float = 1.55
    #: Exponent of the tokens of one request: they share experts, so `t` of them touch
    #: as many as `t ** routing` independent ones.
    routing: float = 0.641
    #: Factor of `speculation`, `speculation_request` and `draft_pass` in engines before
    #: vLLM 0.11 and SGLang 0.5, which prepared every draft on the CPU.
    dated: float = 2.36


class Machine(Struct, frozen=True):
    """One or several GPUs; a model is spread over them by tensor parallelism."""

    accelerator: Accelerator
    count: int = 1
    overheads: Overheads = Overheads()
    #: Whether the engine's kernels are those that `Accelerator.units` is about.
    unsplit: bool = True

    def pass_seconds(
        self, model: Model, tokens: float, requests: float, context: float
    ) -> float:
        """Return the time of one pass of target or drafter, without the engine's own
        overhead of a step.

        `tokens` are computed in the pass, over all requests; each request attends to
        `context` tokens.
        """
        states = (requests + tokens) * model.state_bytes
        layer = self.overheads.layer
        if model.routed_parameters:
            layer += self.overheads.experts_layer
        return (
            self._weights_seconds(model, tokens, requests)
            + self._attention_seconds(model, tokens, requests, context)
            # Linear attention reads one state for each request, and writes one for each
            # token: drafts may fail.
            + states / (self.bandwidth * self.overheads.bandwidth)
            + model.layers * layer
            + self._message_seconds(model, tokens)
        )

    @property
    def bandwidth(self) -> float:
        """The bandwidth of all GPUs together, in bytes per second."""
        return self.accelerator.bandwidth * self.count

    def _weights_seconds(self, model: Model, tokens: float, requests: float) -> float:
        """Return the time of reading weights and of multiplying, which overlap."""
        precision = model.precision
        reading_share = self.overheads.bandwidth
        if precision.bytes_read < BF16.bytes_read:
            reading_share = self.overheads.bandwidth_quantized
            if model.routed_parameters:
                reading_share = self.overheads.bandwidth_quantized_experts
        computing_share = self.overheads.throughput
        if self._unpacks(model):
            computing_share = self.overheads.throughput_4bit
        operations = self._operations_per_second(model)
        independent = requests * (tokens / requests) ** self.overheads.routing
        reading = model.bytes_read(independent) / (self.bandwidth * reading_share)
        computing = (
            2 * model.multiplied_parameters * tokens / (operations * computing_share)
        )
        powers = reading**_SHARPNESS + computing**_SHARPNESS
        return float(powers ** (1 / _SHARPNESS))

    def _unpacks(self, model: Model) -> bool:
        """Whether weights are unpacked to 16 bits before they are multiplied: those of
        four bits without instructions for these.
        """
        precision = model.precision
        has_fp4 = "fp4" in self.accelerator.throughput
        return precision.bytes_read < 1 and not (
            has_fp4 and precision.arithmetic == "fp4"
        )

    def _operations_per_second(self, model: Model) -> float:
        arithmetic = "fp16" if self._unpacks(model) else model.precision.arithmetic
        return self.accelerator.operations_per_second(arithmetic) * self.count

    def prompt_token_seconds(self, model: Model, parameters: float) -> float:
        """Return the time that one more token of a long prompt adds to a step, if it is
        multiplied with so many parameters of the model.

        Its weights are read for the step anyway, and unpacked once for all tokens.
        """
        operations = self._operations_per_second(model) * self.overheads.throughput
        return self.overheads.prompt * 2 * parameters / operations

    def _attention_seconds(
        self, model: Model, tokens: float, requests: float, context: float
    ) -> float:
        """Return the time of reading keys and values, in layers with all of the context
        and with a window.
        """
        gpu = self.accelerator
        total = 0.0
        for values, heads, tokens_read in (
            (model.kv_values, model.kv_heads, context),
            (model.window_values, model.window_heads, min(context, model.window)),
        ):
            size = requests * tokens_read * values * model.kv_bytes / self.count
            slowdown = 1 / self.overheads.bandwidth
            if tokens > requests and self.unsplit and heads:
                streams = requests * max(1.0, heads / self.count)
                slowdown = max(slowdown, gpu.units / streams)
            total += size / gpu.bandwidth * slowdown
        return total

    def _message_seconds(self, model: Model, tokens: float) -> float:
        """Return the time of the messages between GPUs: two all-reduces of the hidden
        state a layer.
        """
        if self.count == 1:
            return 0.0
        size = 2 * tokens * model.hidden * 2 * (self.count - 1) / self.count
        link = self.accelerator.link
        message = self.overheads.message
        if link <= _PCIE:
            message = self.overheads.message_pcie
        return 2 * model.layers * (message + size / link)


def parse_machine(text: str) -> tuple[str, Machine]:
    """Return name and machine of ``h100``, ``4xh100`` for tensor parallelism, or data
    of one's own.

    Data are ``bandwidth=1792GB/s,fp16=210TFLOPS``, and may have `fp8`, `int8`, `fp4`,
    `link` and `memory`; a number of GPUs goes before them, as in ``2xbandwidth=...``.
    Raises HardwareError for anything else.
    """
    match = re.fullmatch(r"(?:(\d{1,3})x)?([a-z0-9].*)", text.strip().lower())
    known = accelerators()
    name = match[2].replace("_", "-") if match else ""
    if match is None or match[1] == "0" or (name not in known and "=" not in name):
        raise HardwareError(
            "allowed: an accelerator, COUNTxNAME such as 4xh100, or the data of one's "
            f"own such as bandwidth=1792GB/s,fp16=210TFLOPS; known: {', '.join(known)}"
        )
    accelerator = known.get(name) or own_accelerator(name)
    count = int(match[1] or 1)
    called = accelerator.name
    if count > 1:
        called = f"{count}x{called}"
    return called, Machine(accelerator, count)


class Drafter(Struct, frozen=True):
    """What drafts: a model, or a search in the text."""

    model: Model | None = None  # ``None`` for a search
    parallel: bool = False  # whether one pass proposes all positions
    #: Whether what it takes says nothing about the target: a model of its own, or a
    #: search on the CPU.
    apart: bool = False

    @property
    def prompt_parameters(self) -> float:
        """Parameters that a token of a prompt is multiplied with: of a block its keys
        and values alone, and never an output layer (vLLM 0.32, `llm_base_proposer.py`
        and `dflash.py`).
        """
        if self.model is None:
            return 0.0
        if self.parallel:
            return self.model.kv_values * self.model.hidden
        output = self.model.vocabulary * self.model.hidden
        return max(0.0, self.model.multiplied_parameters - output)


def usual_drafter(
    method: str, target: Model, draft: Model | None = None
) -> Drafter | None:
    """Return the usual drafter of a method, ``None`` if it is not known; `draft_model`
    needs `draft`.
    """
    vocabulary = target.vocabulary
    match method:
        case "draft_model":
            return Drafter(draft, apart=True) if draft is not None else None
        case "ngram" | "ngram_gpu" | "suffix":
            return Drafter(apart=True)
        case "eagle3":
            return Drafter(_head(target, 1, min(EAGLE3_VOCABULARY, vocabulary)))
        case "eagle":
            return Drafter(_head(target, 1, vocabulary))
        case "dflash" | "dspark" | "parallel":
            head = _head(target, _PARALLEL_LAYERS, vocabulary)
            return Drafter(head, parallel=True)
        case "medusa":
            return Drafter(_head(target, 0, _MEDUSA_HEADS * vocabulary), parallel=True)
        case "mlp_speculator":
            return Drafter(_head(target, 0, vocabulary))
    if method_family(method) == "mtp":
        return Drafter(_one_layer(target))
    return None


def _head(target: Model, layers: int, vocabulary: int) -> Model:
    """Return a head of dense decoder layers (14 hidden² parameters, as Llama's) with an
    output layer.
    """
    parameters = 14 * layers * target.hidden**2 + vocabulary * target.hidden
    # A quantized target has a head that is not.
    precision = max(
        BF16, target.precision, key=lambda stored: stored.bytes_per_parameter
    )
    return Model(
        parameters=parameters,
        active_parameters=parameters,
        precision=precision,
        layers=layers,
        hidden=target.hidden,
        kv_values=layers * target.kv_values_of_layer,
        kv_heads=target.kv_heads,
        vocabulary=vocabulary,
    )


def _one_layer(target: Model) -> Model:
    """Return a layer of the target with its experts, and an output layer (multi-token
    prediction).

    Checkpoints keep it at 16 bits, whatever the precision of the other layers.
    """
    layers = target.layers
    routed = target.routed_parameters / target.layers
    output = target.vocabulary * target.hidden
    return replace(
        target,
        parameters=max(0.0, target.dense_parameters - output) / layers
        + routed
        + output,
        precision=BF16,
        routed_parameters=routed,
        looked_up_parameters=0.0,
        layers=1,
        kv_values=target.kv_values_of_layer,
        window_values=0.0,
        state_bytes=0.0,
    )


class PhysicalModel(Struct, frozen=True):
    """The cost of speculation on a machine."""

    machine: Machine  # the GPUs
    target: Model  # the model that is served
    drafter: Drafter  # what drafts
    dated: bool = False  # whether the engine is older than vLLM 0.11 or SGLang 0.5

    def plain_seconds(self, batch: float, context: float) -> float:
        """Return the time of a step without drafts."""
        one_pass = self.machine.pass_seconds(self.target, batch, batch, context)
        return self._base_seconds(batch) + one_pass

    def _base_seconds(self, batch: float) -> float:
        """Return the overhead of the engine that a step has with and without drafts."""
        return self.machine.overheads.step + batch * self.machine.overheads.request

    def prompt_token_seconds(self) -> float:
        """Return the time that one more token of a prompt adds to a step without
        drafts.
        """
        parameters = self.target.multiplied_parameters
        return self.machine.prompt_token_seconds(self.target, parameters)

    def draft_prompt_token_seconds(self) -> float:
        """Return the time that the drafter adds to that: it computes prompts too."""
        model = self.drafter.model
        if model is None:
            return 0.0
        parameters = self.drafter.prompt_parameters
        return self.machine.prompt_token_seconds(model, parameters)

    def verification_seconds(self, k: float, batch: float, context: float) -> float:
        """Return the time of a step with `k` drafted tokens for each request, without
        that of drafting.
        """
        over = self.machine.overheads
        tokens = batch * (k + 1)
        one_pass = self.machine.pass_seconds(self.target, tokens, batch, context)
        preparing = over.speculation + batch * over.speculation_request
        return (
            self._base_seconds(batch)
            + one_pass * over.verification
            + preparing * self._age
        )

    @property
    def _age(self) -> float:
        if self.dated:
            return self.machine.overheads.dated
        return 1.0

    def draft_seconds(self, k: float, batch: float, context: float) -> float:
        """Return the time of drafting in such a step."""
        over = self.machine.overheads
        model = self.drafter.model
        if model is None:
            return over.lookup * batch
        launching = over.draft_pass * self._age

        def one_pass(tokens: float) -> float:
            return launching + self.machine.pass_seconds(model, tokens, batch, context)

        if self.drafter.parallel:
            return one_pass(batch * k)
        # The first pass also reads what the last step accepted; the others have one
        # token for each request.
        return one_pass(batch * 2) + (k - 1) * one_pass(batch)


# The error of the model, from published measurements, each modelled by overheads that
# were fitted without its deployment: `python bench/accuracy/score.py --intervals`
# prints these numbers, and `--check` compares them. They are 90 % prediction intervals
# for one more deployment, by Student's t. A deployment weighs 1, whatever its number of
# measurements. A class with fewer than five deployments takes those of its family in
# all regimes, else those of its regime. `SHARED_ERROR` and how intervals widen are
# chosen, and not checked.

#: Methods that draft alike; `lookup` searches the text, as n-grams do.
METHOD_FAMILIES = ("eagle", "mtp", "parallel", "draft_model", "lookup")
REGIMES = ("dense", "experts")
#: Kinds of targets whose plain steps are known alike.
PLAIN_KINDS = ("dense", "dense quantized", "experts")

#: Factor of a speedup at one request, by `method_family` and `regime`; the same in both
#: directions.
SPEEDUP: Mapping[tuple[str, str], float] = {
    ("eagle", "dense"): 1.22,
    ("eagle", "experts"): 1.48,
    ("mtp", "dense"): 1.47,
    ("mtp", "experts"): 1.4,
    ("parallel", "dense"): 1.84,
    ("parallel", "experts"): 2.66,
    ("draft_model", "dense"): 8.21,
    ("draft_model", "experts"): 8.21,
    ("lookup", "dense"): 1.76,
    ("lookup", "experts"): 1.66,
}
#: What each doubling of the batch adds to the logarithm of that factor, as a share of
#: it: at one request all steps read the weights; later multiplying, attention and the
#: engine count more, and are known less.
WIDER_PER_DOUBLING = 0.05
#: What each doubling of the context beyond `_SHORT_CONTEXT` adds to the logarithm of
#: the factor of a speedup, and of a plain step: kernels differ in how they read keys
#: and values, most of all for several tokens of a request. The root of the mean squared
#: error is 0.25 up to 1,000 tokens, 0.35 from 4,000 and 0.54 from 10,000 on. Of 0.05 to
#: 0.2, this leaves the fewest estimates without a verdict.
CONTEXT_ERROR = 0.1
#: Tokens of context that most published measurements have at the most.
_SHORT_CONTEXT = 1000.0
#: Factor of the time of a step with drafts, in both directions.
STEP = 2.18
#: The least and the largest factor of the time of a step without drafts, by
#: `plain_kind`, over what `observed_step.with_observed_step` gives.
PLAIN: Mapping[str, tuple[float, float]] = {
    "dense": (0.87, 1.19),
    "dense quantized": (0.64, 1.59),
    "experts": (0.74, 1.35),
}
#: Factor of the time of prompts, in both directions: long ones fill the multipliers,
#: short ones come with what a request costs besides.
PROMPTS = 1.7
#: A plain step is taken to exceed its model by that power of what an observed step with
#: drafts exceeds its own by: both read the same weights, on the same machine, with the
#: same kernels. What a drafter of its own takes says nothing about the target.
SHARED_ERROR = 0.4
#: The error of that power: where a step contradicts its model, little is known of the
#: plain one.
SHARED_ERROR_REACH = 0.3


def method_family(method: str) -> str:
    """Return the family of a method as vLLM calls it."""
    if method in ("dflash", "dspark", "parallel", "medusa"):
        return "parallel"
    if method in ("eagle", "eagle3", "mlp_speculator"):
        return "eagle"
    if method == "mtp" or method.endswith("_mtp"):
        return "mtp"
    if method in ("ngram", "ngram_gpu", "suffix"):
        return "lookup"
    return "draft_model"


def plain_kind(target: Model) -> str:
    """Return the kind of a target, of `PLAIN_KINDS`."""
    if target.routed_parameters:
        return "experts"
    if target.precision.bytes_read < BF16.bytes_read:
        return "dense quantized"
    return "dense"


def regime(target: Model) -> str:
    """Return `experts` for a mixture of experts, whose step depends on how many are
    chosen, else `dense`.
    """
    if target.routed_parameters:
        return "experts"
    return "dense"


def widening(batch: float) -> float:
    """Return the factor on the logarithm of the error at one request, for a batch from
    1 up.
    """
    return 1 + WIDER_PER_DOUBLING * math.log2(batch)


def context_error(context: float) -> float:
    """Return the part of an error that a context of so many tokens brings, as the
    logarithm of a factor.
    """
    return CONTEXT_ERROR * math.log2(max(1.0, context / _SHORT_CONTEXT))
