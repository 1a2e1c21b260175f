"""`plan`: does a drafter fit, and what may it gain? Without a server."""

import argparse
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from ...config.files import read_regular
from ...config.options import ConfigError
from ...config.values import memory, number
from ...economics.architecture import Architecture, read_architecture
from ...economics.hardware import parse_machine
from ...economics.model import Model, from_architecture, from_parameters
from ...economics.profiles import for_method
from ...economics.sizes import PRECISIONS, Precision, parse_parameters, parse_precision
from ..arguments import add_flag, parsed, whole_between
from ..exit_codes import FINE, PROBLEM
from .estimates import estimate_head
from .planning import Conclusion, make_plan, render, to_document
from .question import (
    METHODS,
    Drafter,
    Facts,
    Gpus,
    Method,
    Objective,
    PlannedLoad,
    Question,
)


def _read_config(path: str) -> Architecture:
    """Return the architecture in a `config.json`; ValueError if it cannot be read or
    understood.
    """
    text, problem = read_regular(path)
    if text is None:
        raise ValueError(problem)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {' '.join(str(error).split())}") from error
    return read_architecture(document)


# Exit codes; bad usage is 2.

# Above all that exists, so that only slips are refused.
_MAX_K = 256
_MAX_GPUS = 100_000
_MAX_BATCH = 1_000_000
_MAX_CONTEXT = 1_000_000_000
_MAX_TEMPERATURE = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `plan` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} nothing speaks against it; {PROBLEM} a check fails or a "
        "reason to leave it off holds; 2 bad usage."
    )
    precisions = ", ".join(PRECISIONS)
    flags: dict[str, tuple[str, Callable[[str], Any]]] = {
        "--target-params SIZE": (
            "Parameters of the target, such as 70B, 1.5B, 500M or 70e9.",
            parse_parameters,
        ),
        "--target-config FILE": (
            "config.json of the target (Hugging Face), instead of its size.",
            _read_config,
        ),
        "--target-model NAME": (
            "What vLLM serves, such as Qwen/Qwen3-8B, for its known problems.",
            str,
        ),
        "--target-precision NAME": (
            f"{precisions}. Default: what the config.json says, else bf16.",
            parse_precision,
        ),
        "--draft-params SIZE": (
            "Parameters of the draft model or of the heads.",
            parse_parameters,
        ),
        "--draft-config FILE": (
            "config.json of the draft model, instead of its size.",
            _read_config,
        ),
        "--draft-precision NAME": (
            "Likewise. Default: its config.json's, else 16 bits (MTP: the target's).",
            parse_precision,
        ),
        "--draft-model NAME": (
            "What vLLM shall load as drafter, for the configuration to paste.",
            str,
        ),
        "--gpu NAME": (
            "The GPU, such as h100: its memory, and the speedup to expect on it.",
            str,  # parsed with --gpus
        ),
        "--gpu-memory SIZE": (
            "Memory of one GPU with its unit: 80GB is 80e9 bytes, 80GiB 80 x 2^30.",
            memory,
        ),
        "--context TOKENS": (
            (
                "Tokens of a request, prompt and answer together. Default of the "
                "speedup: 1,000."
            ),
            whole_between(1, _MAX_CONTEXT),
        ),
        "--batch N": ("Requests at the same time.", whole_between(1, _MAX_BATCH)),
        "--kv-precision NAME": (
            "Of keys and values. Default: 16 bits; fp32 for a target in fp32.",
            parse_precision,
        ),
        "--num-speculative-tokens K": (
            "Default: what is typical of the method.",
            whole_between(1, _MAX_K),
        ),
        "--acceptance RATIO": (
            (
                "Expected acceptance per token, 0 to 1. Default: a cautious and a "
                "good one."
            ),
            number(0, 1),
        ),
    }
    add = partial(add_flag, parser)
    for flag, (text, parse) in flags.items():
        add(flag, text, parse=parse)
    add(
        "--gpus N",
        "GPUs that hold the models.",
        "1",
        whole_between(1, _MAX_GPUS),
    )
    add(
        "--gpu-memory-utilization RATIO",
        "Share of the memory that vLLM may use, as its option of this name.",
        "0.9",
        number(math.ulp(0.0), 1.0, "a number above 0 and at most 1"),
    )
    add("--method", "", "draft_model", choices=tuple(METHODS))
    add("--json", "Print everything as one JSON object instead.")

    add = partial(
        add_flag,
        parser.add_argument_group("facts", "A fact that is not given is unknown."),
    )
    add(
        "--temperature T",
        "Sampling temperature in production; repeat it for the range or for a sample.",
        [],
        number(0, _MAX_TEMPERATURE),
        action="append",
    )
    objective = "What matters most: time per output token, throughput, TTFT."
    add("--objective", objective, choices=tuple(Objective))
    yes_or_no = {
        "--same-family": (
            "Target and draft are of one family; heads: trained for this very target."
        ),
        "--same-tokenizer": "Target and draft share the tokenizer.",
        "--uniform-batch": "The requests of a batch are alike.",
        "--validated-at-temperature": (
            "Acceptance was measured at production's temperature."
        ),
        "--monitored": "Acceptance is monitored.",
        "--min-p-or-logit-bias": (
            "Requests have min_p or logit_bias, which vLLM refuses once it speculates."
        ),
    }
    for flag, text in yes_or_no.items():
        add(flag, text, choices=("yes", "no"))


def run(args: argparse.Namespace) -> int:
    """Plan, print the report and return the exit code."""
    plan = make_plan(read_question(args))
    if args.json:
        print(json.dumps(to_document(plan), indent=2))
    else:
        print(render(plan))
    if plan.conclusion is Conclusion.LEAVE_OFF:
        return PROBLEM
    return FINE


def read_question(args: argparse.Namespace) -> Question:
    """Return the question on the command line; ConfigError if something is missing or
    invalid.
    """
    method = METHODS[args.method]
    target = _model(args, "target", PRECISIONS["bf16"], "assumed")
    if target is None:
        raise ConfigError(
            "--target-params or --target-config is missing: the size of the model "
            "to serve"
        )
    if target.architecture and target.architecture.head:
        raise ConfigError(
            f"--target-config is a head of {target.architecture.head.method}, which "
            "drafts for a model: give it as --draft-config"
        )
    # Before the GPUs: what is missing is reported in the order of the help.
    draft = _draft(args, method, target)
    # vLLM keeps keys and values in the type in which it computes.
    usual_kv = PRECISIONS["fp32" if target.precision.name == "fp32" else "bf16"]
    hardware = None
    gpu_memory = args.gpu_memory
    if args.gpu is not None:
        # Not a parser of the flag: the machine depends on the number of GPUs.
        machine = f"{args.gpus}x{args.gpu}"
        hardware = parsed("--gpu", args.gpu, lambda _: parse_machine(machine))
        gpu_memory = gpu_memory or hardware[1].accelerator.memory
    if not gpu_memory:
        raise ConfigError(
            "--gpu or --gpu-memory is missing: the GPU, such as h100, or the "
            "memory of one, such as 80GB"
        )
    return Question(
        method=method,
        target=target,
        draft=draft,
        gpus=Gpus(args.gpus, gpu_memory, args.gpu_memory_utilization),
        kv_precision=args.kv_precision or usual_kv,
        k=args.num_speculative_tokens,
        acceptance=args.acceptance,
        load=PlannedLoad(args.context, args.batch),
        facts=_facts(args),
        drafter_name=args.draft_model or "",
        target_name=args.target_model or "",
        hardware=hardware,
    )


def _draft(args: argparse.Namespace, method: Method, target: Model) -> Model | None:
    if method.drafter is Drafter.LOOKUP:
        for name in ("params", "config", "precision", "model"):
            if getattr(args, f"draft_{name}") is not None:
                raise ConfigError(f"--draft-{name}: {method.name} has no draft model")
        return None
    usual, source = _usual_precision(method, target)
    if args.draft_config is not None:
        args.draft_config = _as_drafter(args.draft_config, method)
    model = _model(args, "draft", usual, source)
    if model is not None:
        return model
    if method.drafter is Drafter.MODEL:
        raise ConfigError(
            "--draft-params or --draft-config is missing: the size of the draft model"
        )
    if args.draft_precision:
        usual = args.draft_precision
        source = "as given"
    depth = args.num_speculative_tokens or for_method(method.name).typical_k
    estimate = estimate_head(method, target, usual, depth)
    return estimate and replace(estimate, precision_source=source)


def _as_drafter(architecture: Architecture, method: Method) -> Architecture:
    """Return the drafter of a method; ConfigError if it is a head of another one."""
    drafter = architecture.as_head(method.name)
    if drafter.head is not None and drafter.head.method != method.name:
        raise ConfigError(
            f"--draft-config is a head of {drafter.head.method}: add --method "
            f"{drafter.head.method}"
        )
    return drafter


def _usual_precision(method: Method, target: Model) -> tuple[Precision, str]:
    """Return the precision of a drafter if not known: vLLM loads it in the target's
    type, not quantized.
    """
    if method.name == "mtp" or target.precision.bytes_per_parameter >= 2:
        return target.precision, "as the target"
    return PRECISIONS["bf16"], "assumed"


def _model(
    args: argparse.Namespace, role: str, usual: Precision, usual_source: str
) -> Model | None:
    size = getattr(args, f"{role}_params")
    architecture = getattr(args, f"{role}_config")
    precision = getattr(args, f"{role}_precision")
    source = "as given" if precision else usual_source
    if size is not None and architecture is not None:
        raise ConfigError(
            f"--{role}-params and --{role}-config both have the size; give one of them"
        )
    if size is not None:
        model = from_parameters(size, precision or usual)
        return replace(model, precision_source=source)
    if architecture is None:
        return None
    if not precision and architecture.precision:
        precision = architecture.precision
        source = "by its config.json"
    if not precision and architecture.quantized:
        raise ConfigError(
            f"--{role}-config: its quantization_config is not understood; give "
            f"--{role}-precision"
        )
    model = from_architecture(architecture, precision or usual)
    return replace(model, precision_source=source)


def _facts(args: argparse.Namespace) -> Facts:
    stated = {"yes": True, "no": False, None: None}
    return Facts(
        temperatures=tuple(args.temperature),
        objective=args.objective and Objective(args.objective),
        same_family=stated[args.same_family],
        same_tokenizer=stated[args.same_tokenizer],
        uniform_batch=stated[args.uniform_batch],
        validated=stated[args.validated_at_temperature],
        monitored=stated[args.monitored],
        min_p_or_logit_bias=stated[args.min_p_or_logit_bias],
    )
