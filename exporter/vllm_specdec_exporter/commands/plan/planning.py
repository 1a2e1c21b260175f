"""Planning: from what is known of a deployment to a verdict with its reasons, as JSON
and as text. Pure.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct, to_builtins

from ...economics.model import Model
from ...economics.sizes import format_gigabytes, format_parameters
from ...publish.terminal import DASH, shown, wrap
from .checklist import Answer, Checklist, Item, fill_in
from .checks import Check, Verdict, check_all
from .estimates import Memory, MemoryBudget, SpeedupByBatch, account, look_ahead
from .question import Drafter, Method, Question

T = TypeVar("T")


class Conclusion(StrEnum):
    """The verdict on a plan."""

    USE = "use"
    """Everything was checked, and all of it speaks for it."""
    MEASURE_FIRST = "measure_first"
    """Nothing speaks against it, but something warns or is not known."""
    LEAVE_OFF = "leave_off"
    """A check fails, or a reason to leave it off holds."""


class Plan(Struct, frozen=True):
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
    memory = account(question)
    # Before the checks, two of which judge K and the speedups in it.
    outlook = look_ahead(question)
    checks = tuple(check_all(question, memory, outlook))
    checklist = fill_in(question, memory)
    conclusion, reason = conclude(checks, checklist)
    return Plan(
        question=question,
        conclusion=conclusion,
        reason=reason,
        memory=memory,
        checks=checks,
        checklist=checklist,
        outlook=outlook,
        speculative_config=speculative_config(
            question.method, outlook.k, question.drafter_name
        ),
    )


def conclude(checks: tuple[Check, ...], checklist: Checklist) -> tuple[Conclusion, str]:
    """Return the verdict on checks and checklist, and the reasons."""

    def with_verdict(verdict: Verdict) -> list[str]:
        return [check.name for check in checks if check.verdict is verdict]

    def with_answer(items: tuple[Item, ...], answer: Answer) -> list[str]:
        return [item.name for item in items if item.holds is answer]

    # What fails comes first: doubts beside it change nothing.
    against = _listed(
        {
            "fails": with_verdict(Verdict.FAIL),
            "speaks against it": with_answer(checklist.leave_off, Answer.YES),
        }
    )
    if against:
        return Conclusion.LEAVE_OFF, against
    doubts = _listed(
        {
            "warns": with_verdict(Verdict.WARN),
            "not as wanted": with_answer(checklist.use, Answer.NO),
            "not known": [
                *with_verdict(Verdict.UNKNOWN),
                *with_answer(checklist.use, Answer.UNKNOWN),
                *with_answer(checklist.leave_off, Answer.UNKNOWN),
            ],
        }
    )
    if doubts:
        return Conclusion.MEASURE_FIRST, f"nothing speaks against it; {doubts}"
    return Conclusion.USE, "every check passes and every condition for it holds"


def _listed(points: Mapping[str, list[str]]) -> str:
    """Return points with their names, each once; empty if there are none."""
    return "; ".join(
        f"{point}: {', '.join(dict.fromkeys(names))}"
        for point, names in points.items()
        if names
    )


def speculative_config(method: Method, k: int, name: str = "") -> dict[str, object]:
    """Return the object for vLLM's ``--speculative-config``; an empty `name` means an
    unknown drafter.
    """
    config: dict[str, object] = {"method": method.name}
    if name or (method.named and method.drafter is not Drafter.LOOKUP):
        # No name is a guess: vLLM refuses the placeholder.
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
        "draft": question.draft and _model_document(question.draft),
        "gpus": to_builtins(question.gpus),
        "load": to_builtins(question.load),
        "facts": to_builtins(question.facts),
        "memory": {
            "kv_precision": question.kv_precision.name,
            **to_builtins(plan.memory),
        },
        "checks": [to_builtins(check) for check in plan.checks],
        "checklist": to_builtins(plan.checklist),
        "speedup": to_builtins(plan.outlook),
        "speculative_config": dict(plan.speculative_config),
    }


def _model_document(model: Model) -> dict[str, object]:
    return {
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "precision": model.precision.name,
        "bytes_per_parameter": model.precision.bytes_per_parameter,
        "weights_bytes": model.weight_bytes,
        "source": model.source,
        "precision_source": model.precision_source,
        "estimated": model.estimated,
        "architecture": model.architecture and to_builtins(model.architecture),
    }


# The texts of checks and checklist are also in the JSON, word by word.
def render(plan: Plan) -> str:
    """Return the report on `plan`."""
    conclusion = plan.conclusion.replace("_", " ").upper()
    method = plan.question.method.name
    verdict = f"{conclusion}  {method}, K = {plan.outlook.k}; {plan.reason}"
    config = shlex.quote(json.dumps(dict(plan.speculative_config)))
    checklist = plan.checklist
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
        *_rows((item.holds, item.name, item.text) for item in checklist.use),
        "",
        "  leave it off when",
        *_rows((item.holds, item.name, item.text) for item in checklist.leave_off),
        "",
        *_speedup(plan),
        "",
        "  to paste",
        f"    --speculative-config {config}",
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
    total = format_gigabytes(gpus.total)
    usable = format_gigabytes(gpus.usable)
    text = (
        f"{gpus.count} x {gpus.memory_bytes / 1e9:g} GB = {total}, of which vLLM may "
        f"use {gpus.utilization:g} = {usable} (GB = 1e9 bytes)"
    )
    yield from wrap(text, "  GPUs    ", 10)


def _model(model: Model) -> str:
    parameters = f"{format_parameters(model.parameters)} parameters {model.source}"
    # Only a mixture of experts reads less than all of it.
    if model.active_parameters < model.parameters:
        active = format_parameters(model.active_parameters)
        parameters += f", of which a token passes through {active}"
    return (
        f"{parameters}; {model.precision.name} {model.precision_source}: "
        f"{format_gigabytes(model.weight_bytes)}"
    )


def _memory(plan: Plan) -> Iterator[str]:
    memory = plan.memory
    context = plan.question.load.context
    both = None
    if memory.draft_weights_bytes is not None:
        both = memory.target_weights_bytes + memory.draft_weights_bytes
    yield f"  {'memory':<28}{'without drafter':>18}{'with drafter':>18}"
    yield _memory_row("weights", memory.target_weights_bytes, both, format_gigabytes)
    rows: dict[str, Callable[[MemoryBudget], str]] = {
        "KV budget": lambda budget: format_gigabytes(budget.kv_budget_bytes),
        "KV of a token": lambda budget: shown(
            budget.kv_bytes_per_token, "{:,.0f} bytes"
        ),
        "tokens that fit": lambda budget: shown(budget.tokens, "{:,}"),
    }
    if context is not None:
        rows[f"requests of {context:,} tokens"] = lambda budget: shown(
            budget.requests, "{:,}"
        )
    for name, cell in rows.items():
        yield _memory_row(name, memory.before, memory.after, cell)
    for note in _memory_notes(plan):
        yield from wrap(note, "    ", 4)


def _memory_row(
    name: str, without: T, with_drafter: T | None, cell: Callable[[T], str]
) -> str:
    second = DASH if with_drafter is None else cell(with_drafter)
    return f"    {name:<26}{cell(without):>18}{second:>18}"


def _memory_notes(plan: Plan) -> Iterator[str]:
    has_dimensions = plan.question.target.architecture is not None
    note = (
        "Weights and budget are taken to split evenly over the GPUs. Activations and "
        "CUDA graphs (a few GB on each GPU) come off the budget and are not counted."
    )
    if has_dimensions:
        note = f"Keys and values in {plan.question.kv_precision.name}. {note}"
    yield note
    if not has_dimensions:
        yield "What a token takes needs the target's dimensions: --target-config."
    elif not plan.memory.draft_kv_known:
        yield (
            "The draft's own keys and values are not counted: their size needs "
            "--draft-config."
        )


def _speedup(plan: Plan) -> Iterator[str]:
    yield "  expected speedup: tokens per step over the cost of a step"
    head = f"    {'batch':>6}{'step cost':>11}"
    for assumption in plan.outlook.assumptions:
        name = f"{assumption.name} {assumption.acceptance:g}"
        head += f"{f'{name}: {assumption.tokens:.2f} tokens':>27}"
    yield head
    for row in plan.outlook.rows:
        line = f"    {row.batch:>6}{row.step_cost:>11.2f}"
        for speedup in row.speedups:
            ends = f"({speedup.low:.2f} to {speedup.high:.2f})"
            line += f"{f'{speedup.value:.2f}  {ends}':>27}"
        yield line
    for note in _speedup_notes(plan):
        yield from wrap(note, "    ", 4)


def _speedup_notes(plan: Plan) -> Iterator[str]:
    outlook = plan.outlook
    method = plan.question.method
    yield (
        "Step cost is in plain steps of the same batch, and the tokens per step to "
        f"break even. Profile {outlook.profile}, taken to be right within "
        f"{outlook.uncertainty:.0%} at one request, for {outlook.context:,.0f} tokens "
        f"of context each. {outlook.provenance}"
    )
    if plan.question.acceptance is None:
        yield (
            f"The acceptances per token are assumptions ({method.acceptance_source}). "
            "Measure yours."
        )
    if method.drafter is Drafter.LOOKUP:
        yield (
            f"Every step is taken to draft {outlook.k} tokens. {method.name} drafts "
            "fewer or none where it finds nothing, which costs less and gains less."
        )


def _rows(rows: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    for result, name, text in rows:
        yield from wrap(text, f"    {result:<9}{name:<24}", 37)
