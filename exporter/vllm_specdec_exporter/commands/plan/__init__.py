"""`plan`: does a drafter fit, and what may it gain? Without a server.

* `methods`: what each method needs, its usual K and acceptance, and the size of its heads.
* `estimates`: memory for keys and values with and without the drafter, and the speedup by batch size.
* `checks`, `checklist`: what the estimates, and facts that only the operator knows, speak for or against.
* `planning`, `report`: all of it with a verdict, as JSON and as text.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...config.options import ConfigError
from ...economics.architecture import ArchitectureError, read_architecture
from ...economics.hardware import parse_machine
from ...economics.model import from_architecture, from_parameters
from ...economics.profiles import BUILTIN
from ...economics.sizes import PRECISIONS, parse_memory, parse_parameters, parse_precision
from ..arguments import add_flag, number_between, parsed
from .checklist import Facts, Objective
from .estimates import Gpus, PlannedLoad, usual_depth
from .methods import METHODS, Drafter, estimate_head
from .planning import Conclusion, Question, make_plan, to_document
from .report import render

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from ...economics.architecture import Architecture
    from ...economics.model import Model
    from ...economics.sizes import Precision
    from .methods import Method


_MAX_CONFIG = 16 * 1024 * 1024


def read_config(flag: str, path: str) -> Architecture:
    """Return the architecture in a `config.json`; ConfigError if it cannot be read or understood."""
    where = f"{flag} {json.dumps(path)}"
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MAX_CONFIG + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(text) > _MAX_CONFIG:
        raise ConfigError(f"{where}: larger than {_MAX_CONFIG // 2**20} MiB; no config.json is")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {' '.join(str(error).split())}") from error
    try:
        return read_architecture(document)
    except ArchitectureError as error:
        raise ConfigError(f"{where}: {error}") from error


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers within these bounds; it raises ValueError with what is allowed."""

    def parse(text: str) -> int:
        digits = text.strip().replace(",", "")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 12 and least <= int(digits) <= most):
            raise ValueError(f"allowed: a whole number from {least:,} to {most:,}")
        return int(digits)

    return parse


T = TypeVar("T")

# Exit codes; bad usage is 2.
FINE, AGAINST = 0, 1

_DEEPEST, _MOST_GPUS, _MOST_BATCH, _MOST_CONTEXT = 256, 100_000, 1_000_000, 1_000_000_000
_HOTTEST = 10.0
_UTILIZATION = number_between(math.ulp(0.0), 1.0, "a number above 0 and at most 1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `plan` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} nothing speaks against it; {AGAINST} a check fails or a reason to leave it off "
        "holds; 2 bad usage."
    )
    precisions = ", ".join(PRECISIONS)
    for flag, text in {
        "--target-params SIZE": "Parameters of the target, such as 70B, 1.5B, 500M or 70e9.",
        "--target-config FILE": "config.json of the target (Hugging Face), instead of its size.",
        "--target-model NAME": "What vLLM serves, such as Qwen/Qwen3-8B, for its known problems.",
        "--target-precision NAME": f"{precisions}. Default: what the config.json says, else bf16.",
        "--draft-params SIZE": "Parameters of the draft model or of the heads.",
        "--draft-config FILE": "config.json of the draft model, instead of its size.",
        "--draft-precision NAME": "Likewise. Default: its config.json's, else 16 bits (MTP: the target's).",
        "--draft-model NAME": "What vLLM shall load as drafter, for the configuration to paste.",
        "--gpu NAME": "The GPU, such as h100: its memory, and the speedup to expect on it.",
        "--gpu-memory SIZE": "Memory of one GPU with its unit: 80GB is 80e9 bytes, 80GiB 80 x 2^30.",
        "--context TOKENS": "Tokens that a request holds, prompt and answer together.",
        "--batch N": "Requests at the same time.",
        "--kv-precision NAME": "Of keys and values. Default: 16 bits; fp32 for a target in fp32.",
        "--num-speculative-tokens K": "Default: what is typical of the method.",
        "--acceptance RATIO": "Expected acceptance per token, 0 to 1. Default: a cautious and a good one.",
    }.items():
        add_flag(parser, flag, text)
    add_flag(parser, "--gpus N", "GPUs that hold the models.", "1")
    share = "Share of the memory that vLLM may use, as its option of this name."
    add_flag(parser, "--gpu-memory-utilization RATIO", share, "0.9")
    add_flag(parser, "--method", "", "draft_model", choices=tuple(METHODS))
    parser.add_argument(
        "--cost.profile",
        "--cost-profile",
        dest="cost_profile",
        choices=tuple(BUILTIN),
        metavar="NAME",
        help=f"Cost profile: {', '.join(BUILTIN)}. Default: the method's, fitted to the sizes.",
    )
    add_flag(parser, "--json", "Print everything as one JSON object instead.")

    facts = parser.add_argument_group("facts", "What is not told counts as not known.")
    warmth = "Sampling temperature in production; repeat it for the range or for a sample."
    add_flag(facts, "--temperature T", warmth, action="append")
    objective = "What matters most: time per output token, throughput, TTFT."
    add_flag(facts, "--objective", objective, choices=tuple(Objective))
    for flag, text in {
        "--same-family": "Target and draft are of one family; heads: trained for this very target.",
        "--same-tokenizer": "Target and draft share the tokenizer.",
        "--uniform-batch": "The requests of a batch are alike.",
        "--validated-at-temperature": "Acceptance was measured at production's temperature.",
        "--monitored": "Acceptance is monitored.",
    }.items():
        add_flag(facts, flag, text, choices=("yes", "no"))


def run(args: argparse.Namespace) -> int:
    """Plan, print the report and return the exit code."""
    plan = make_plan(read_question(args))
    if args.json:
        print(json.dumps(to_document(plan), indent=2))
    else:
        print(render(plan))
    return AGAINST if plan.conclusion is Conclusion.LEAVE_OFF else FINE


def read_question(args: argparse.Namespace) -> Question:
    """Return the question on the command line; ConfigError if something is missing or invalid."""
    method = METHODS[args.method]
    target = _model(args, "target")
    if target is None:
        raise ConfigError("--target-params or --target-config is missing: the size of the model to serve")
    k = _maybe(args, "num_speculative_tokens", whole(1, _DEEPEST))
    profile = BUILTIN[args.cost_profile] if args.cost_profile else None
    draft = _draft(args, method, target, k)
    kv = _maybe(args, "kv_precision", parse_precision)
    wide = target.precision.name == "fp32"
    gpus = parsed("--gpus", args.gpus, whole(1, _MOST_GPUS))
    hardware = _maybe(args, "gpu", lambda name: parse_machine(f"{gpus}x{name}"))
    if args.gpu_memory is not None:
        memory = parsed("--gpu-memory", args.gpu_memory, parse_memory)
    elif hardware is not None:
        memory = hardware[1].accelerator.memory
    else:
        raise ConfigError(
            "--gpu or --gpu-memory is missing: the GPU, such as h100, or the memory of one, such as 80GB"
        )
    utilization = parsed("--gpu-memory-utilization", args.gpu_memory_utilization, _UTILIZATION)
    context = _maybe(args, "context", whole(1, _MOST_CONTEXT))
    return Question(
        method=method,
        target=target,
        draft=draft,
        gpus=Gpus(gpus, memory, utilization),
        kv_precision=kv or PRECISIONS["fp32" if wide else "bf16"],
        k=k,
        acceptance=_maybe(args, "acceptance", number_between(0, 1)),
        load=PlannedLoad(context, _maybe(args, "batch", whole(1, _MOST_BATCH))),
        facts=_facts(args),
        profile=profile,
        drafter_name=args.draft_model or "",
        target_name=args.target_model or "",
        hardware=hardware,
    )


def _draft(args: argparse.Namespace, method: Method, target: Model, k: int | None) -> Model | None:
    if method.drafter is Drafter.LOOKUP:
        for name in ("draft_params", "draft_config", "draft_precision", "draft_model"):
            if (given := getattr(args, name)) is not None:
                raise ConfigError(f"{_flag(name)} {json.dumps(given)}: {method.name} has no draft model")
        return None
    model = _model(args, "draft", _usual_precision(method, target))
    if model is None and method.drafter is Drafter.MODEL:
        raise ConfigError("--draft-params or --draft-config is missing: the size of the draft model")
    if model is not None:
        return model
    precision = _maybe(args, "draft_precision", parse_precision)
    usual, source = _usual_precision(method, target)
    depth = k or usual_depth(method)
    estimate = estimate_head(method, target, precision or usual, depth)
    return estimate and replace(estimate, precision_source="as given" if precision else source)


def _usual_precision(method: Method, target: Model) -> tuple[Precision, str]:
    """Return the precision of a drafter if not known: vLLM loads it in the target's type, not quantized."""
    if method.name == "mtp":
        return target.precision, "as the target"
    if target.precision.bytes_per_parameter >= 2:
        return target.precision, "assumed, as the target"
    return PRECISIONS["bf16"], "assumed"


def _model(
    args: argparse.Namespace, role: str, usual: tuple[Precision, str] = (PRECISIONS["bf16"], "assumed")
) -> Model | None:
    size = _maybe(args, f"{role}_params", parse_parameters)
    path = getattr(args, f"{role}_config")
    given = _maybe(args, f"{role}_precision", parse_precision)
    if size is not None and path is not None:
        raise ConfigError(f"--{role}-params and --{role}-config both tell the size; give one of them")
    if size is not None:
        precision, source = (given, "as given") if given else usual
        return replace(from_parameters(size, precision), precision_source=source)
    if path is None:
        return None
    architecture = read_config(f"--{role}-config", path)
    if given is None and architecture.weights is None and architecture.quantized:
        raise ConfigError(
            f"--{role}-config {json.dumps(path)}: its quantization_config is not understood; "
            f"give --{role}-precision"
        )
    if given:
        precision, source = given, "as given"
    elif architecture.weights:
        precision, source = architecture.weights, "by its config.json"
    else:
        precision, source = usual
    return replace(from_architecture(architecture, precision), precision_source=source)


def _facts(args: argparse.Namespace) -> Facts:
    def said(name: str) -> bool | None:
        value = getattr(args, name)
        return None if value is None else value == "yes"

    warmths = (parsed("--temperature", text, number_between(0, _HOTTEST)) for text in args.temperature or ())
    return Facts(
        temperatures=tuple(warmths),
        objective=None if args.objective is None else Objective(args.objective),
        same_family=said("same_family"),
        same_tokenizer=said("same_tokenizer"),
        uniform_batch=said("uniform_batch"),
        validated=said("validated_at_temperature"),
        monitored=said("monitored"),
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _maybe(args: Any, name: str, parse: Callable[[str], T]) -> T | None:
    text = getattr(args, name)
    return None if text is None else parsed(_flag(name), text, parse)
