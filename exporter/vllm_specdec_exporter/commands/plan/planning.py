"""Planning: from what is known of a deployment to a verdict with its reasons, as JSON
and as text. Pure.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from ...economics.hardware import Machine
from ...economics.model import Model
from ...economics.profiles import for_method
from ...economics.sizes import Precision, format_gigabytes, format_parameters
from ...publish.wording import DASH, shown, wrap
from .checks import Answer, Check, Checklist, Facts, Verdict, check_all, fill_in
from .estimates import (
    Drafter,
    Gpus,
    Memory,
    MemoryBudget,
    Method,
    PlannedLoad,
    SpeedupByBatch,
    account,
    choose_profile,
    look_ahead,
)


class Conclusion(StrEnum):
    """The verdict on a plan."""

    USE = "use"
    """Everything was checked, and all of it speaks for it."""
    MEASURE_FIRST = "measure_first"
    """Nothing speaks against it, but something warns or is not known."""
    LEAVE_OFF = "leave_off"
    """A check fails, or a reason to leave it off holds."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is planned."""

    method: Method  # how to draft
    target: Model  # the model that is served
    #: The drafter; ``None`` where it has no weights or their size is not known.
    draft: Model | None
    gpus: Gpus  # what it runs on
    kv_precision: Precision  # how keys and values are cached
    #: Number of speculative tokens, from 1 up; ``None`` for what is usual.
    k: int | None = None
    #: Expected per token, 0 to 1; ``None`` where not known.
    acceptance: float | None = None
    load: PlannedLoad = PlannedLoad()  # what is to be served
    facts: Facts = field(default_factory=Facts)  # what else is known of the deployment
    drafter_name: str = ""  # what vLLM shall load as drafter, empty where not known
    target_name: str = ""  # what vLLM serves, empty where not known
    #: Name and GPUs, ``None`` where not known.
    hardware: tuple[str, Machine] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer."""

    question: Question  # what was asked
    conclusion: Conclusion  # the verdict
    reason: str  # the verdict in words, one sentence
    memory: Memory  # what fits
    checks: tuple[Check, ...]  # each with its verdict
    checklist: Checklist  # when to use it, when to leave it off
    outlook: SpeedupByBatch  # the speedup to expect
    #: The object for vLLM's ``--speculative-config``.
    speculative_config: Mapping[str, object]


def make_plan(question: Question) -> Plan:
    """Return everything that paper can tell about `question`."""
    method = question.method
    target = question.target
    draft = question.draft
    load = question.load
    profile = choose_profile(method, target, draft, question.hardware).at_context(
        load.context
    )
    k = question.k or for_method(method.name).typical_k
    kv_bytes = question.kv_precision.bytes_per_parameter
    memory = account(target, draft, method.drafter, question.gpus, load, kv_bytes)
    outlook = look_ahead(method, profile, k, question.acceptance, load.batch)
    facts = question.facts
    checks = tuple(
        check_all(
            method, target, draft, memory, load, outlook, facts, question.target_name
        )
    )
    checklist = fill_in(memory, load, facts)
    conclusion, reason = conclude(checks, checklist)
    config = speculative_config(method, k, question.drafter_name)
    return Plan(
        question, conclusion, reason, memory, checks, checklist, outlook, config
    )


def conclude(checks: tuple[Check, ...], checklist: Checklist) -> tuple[Conclusion, str]:
    """Return the verdict on checks and checklist, and the reasons."""
    against = {
        "fails": [check.name for check in checks if check.verdict is Verdict.FAIL],
        "speaks against it": [
            item.name for item in checklist.leave_off if item.holds is Answer.YES
        ],
    }
    if any(against.values()):
        return Conclusion.LEAVE_OFF, _listed(against)
    unknown = [check.name for check in checks if check.verdict is Verdict.UNKNOWN]
    items = (*checklist.use, *checklist.leave_off)
    doubts = {
        "warns": [check.name for check in checks if check.verdict is Verdict.WARN],
        "not as wanted": [
            item.name for item in checklist.use if item.holds is Answer.NO
        ],
        "not known": unknown
        + [item.name for item in items if item.holds is Answer.UNKNOWN],
    }
    if any(doubts.values()):
        return Conclusion.MEASURE_FIRST, f"nothing speaks against it; {_listed(doubts)}"
    return Conclusion.USE, "every check passes and every condition for it holds"


def _listed(points: Mapping[str, list[str]]) -> str:
    lists = {
        words: ", ".join(dict.fromkeys(names))
        for words, names in points.items()
        if names
    }
    return "; ".join(f"{words}: {names}" for words, names in lists.items())


def speculative_config(method: Method, k: int, name: str = "") -> dict[str, object]:
    """Return the object for vLLM's ``--speculative-config``; an empty `name` means an
    unknown drafter.
    """
    config: dict[str, object] = {"method": method.name}
    if name or (method.named and method.drafter != "lookup"):
        config["model"] = name or "<draft model>"
    config["num_speculative_tokens"] = k
    if method.name in ("ngram", "ngram_gpu"):
        config["prompt_lookup_max"] = 4  # as vLLM's page on n-gram speculation has it
    return config


def to_document(plan: Plan) -> dict[str, object]:
    """Return `plan` in types that JSON has."""
    question = plan.question
    return {
        "conclusion": plan.conclusion,
        "reason": plan.reason,
        "method": question.method.name,
        "num_speculative_tokens": plan.outlook.k,
        "target": _model_document(question.target),
        "draft": None if question.draft is None else _model_document(question.draft),
        "gpus": asdict(question.gpus),
        "load": asdict(question.load),
        "facts": asdict(question.facts),
        "memory": {"kv_precision": question.kv_precision.name, **asdict(plan.memory)},
        "checks": [asdict(check) for check in plan.checks],
        "checklist": asdict(plan.checklist),
        "speedup": asdict(plan.outlook),
        "speculative_config": dict(plan.speculative_config),
    }


def _model_document(model: Model) -> dict[str, object]:
    return {
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "precision": model.precision.name,
        "bytes_per_parameter": model.precision.bytes_per_parameter,
        "weights_bytes": model.weights,
        "source": model.source,
        "precision_source": model.precision_source,
        "estimated": model.estimated,
        "architecture": None
        if model.architecture is None
        else asdict(model.architecture),
    }


def render(plan: Plan) -> str:
    """Return the report on `plan`."""
    word = plan.conclusion.replace("_", " ").upper()
    verdict = (
        f"{word}  {plan.question.method.name}, K = {plan.outlook.k}; {plan.reason}"
    )
    lines = [
        *wrap(verdict, "  ", 4),
        "",
        *_models(plan),
        "",
        *_memory(plan),
        "",
        "  checks",
        *_rows((check.verdict, check.name, check.text) for check in plan.checks),
        "",
        "  use it when",
        *_rows((item.holds, item.name, item.text) for item in plan.checklist.use),
        "",
        "  leave it off when",
        *_rows((item.holds, item.name, item.text) for item in plan.checklist.leave_off),
        "",
        *_speedup(plan),
        "",
        "  to paste",
        (
            "    --speculative-config "
            f"{shlex.quote(json.dumps(dict(plan.speculative_config)))}"
        ),
    ]
    return "\n".join(line.rstrip() for line in lines)


def _models(plan: Plan) -> Iterator[str]:
    question = plan.question
    yield from wrap(_model(question.target), "  target  ", 10)
    if question.draft is not None:
        yield from wrap(_model(question.draft), "  draft   ", 10)
    elif question.method.drafter is Drafter.LOOKUP:
        yield f"  draft   none: {question.method.name} has no weights"
    else:
        yield "  draft   size not known: find out (--draft-params or --draft-config)"
    gpus = question.gpus
    text = (
        f"{gpus.count} x {gpus.memory_bytes / 1e9:g} GB = "
        f"{format_gigabytes(gpus.total)}, of which vLLM may "
        f"use {gpus.utilization:g} = {format_gigabytes(gpus.usable)} (GB = 1e9 bytes)"
    )
    yield from wrap(text, "  GPUs    ", 10)


def _model(model: Model) -> str:
    active = ""
    if model.active_parameters < model.parameters:
        active = (
            ", of which a token passes through "
            f"{format_parameters(model.active_parameters)}"
        )
    return (
        f"{format_parameters(model.parameters)} parameters {model.source}{active}; "
        f"{model.precision.name} {model.precision_source}: "
        f"{format_gigabytes(model.weights)}"
    )


def _memory(plan: Plan) -> Iterator[str]:
    memory = plan.memory
    context = plan.question.load.context
    weights = memory.target_weights_bytes
    draft = memory.draft_weights_bytes
    both = DASH if draft is None else format_gigabytes(weights + draft)
    yield f"  {'memory':<28}{'without drafter':>18}{'with drafter':>18}"
    yield _memory_row("weights", format_gigabytes(weights), both)
    rows: dict[str, Callable[[MemoryBudget], str]] = {
        "KV budget": lambda room: format_gigabytes(room.kv_budget_bytes),
        "KV of a token": lambda room: shown(room.kv_bytes_per_token, "{:,.0f} bytes"),
        "tokens that fit": lambda room: shown(room.tokens, "{:,}"),
    }
    if context is not None:
        rows[f"requests of {context:,} tokens"] = lambda room: shown(
            room.requests, "{:,}"
        )
    for name, cell in rows.items():
        yield _memory_row(
            name, cell(memory.before), cell(memory.after) if memory.after else DASH
        )
    for note in _notes(plan):
        yield from wrap(note, "    ", 4)


def _memory_row(name: str, before: str, after: str) -> str:
    return f"    {name:<26}{before:>18}{after:>18}"


def _notes(plan: Plan) -> Iterator[str]:
    memory = plan.memory
    target = plan.question.target
    if target.architecture:
        cached = f"Keys and values in {plan.question.kv_precision.name}. "
    else:
        cached = ""
    yield (
        f"{cached}Weights and budget are taken to split evenly over the GPUs. "
        "Activations and CUDA graphs "
        "(a few GB on each GPU) come off the budget and are not counted."
    )
    if target.architecture is None:
        yield "What a token takes needs the target's dimensions: --target-config."
    elif not memory.draft_kv_known:
        yield (
            "The draft's own keys and values are not counted: their size needs "
            "--draft-config."
        )


def _speedup(plan: Plan) -> Iterator[str]:
    outlook = plan.outlook
    yield "  expected speedup: tokens per step over the cost of a step"
    names = [
        f"{one.name} {one.acceptance:g}: {one.tokens:.2f} tokens"
        for one in outlook.assumptions
    ]
    yield f"    {'batch':>6}{'step cost':>11}" + "".join(
        f"{name:>27}" for name in names
    )
    for row in outlook.rows:
        ranges = (
            f"{one.value:.2f}  ({one.low:.2f} to {one.high:.2f})"
            for one in row.speedups
        )
        yield f"    {row.batch:>6}{row.step_cost:>11.2f}" + "".join(
            f"{text:>27}" for text in ranges
        )
    for note in _notes_on_speedup(plan):
        yield from wrap(note, "    ", 4)


def _notes_on_speedup(plan: Plan) -> Iterator[str]:
    outlook = plan.outlook
    method = plan.question.method
    yield (
        "Step cost is in plain steps of the same batch, and the tokens per step to "
        "break even. Profile "
        f"{outlook.profile}, taken to be right within {outlook.uncertainty:.0%} at "
        "one request, for "
        f"{outlook.context:,.0f} tokens of context each. {outlook.provenance}"
    )
    if plan.question.acceptance is None:
        yield (
            f"The acceptances per token are assumptions ({method.acceptance_source}). "
            "Measure yours."
        )
    if method.drafter is Drafter.LOOKUP:
        yield (
            f"Every step is taken to draft {outlook.k} tokens. {method.name} drafts "
            "fewer or none where it "
            "finds nothing, which costs less and gains less."
        )


def _rows(rows: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    for word, name, text in rows:
        yield from wrap(text, f"    {word:<9}{name:<24}", 37)
