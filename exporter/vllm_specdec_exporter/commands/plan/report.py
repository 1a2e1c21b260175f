"""The report of a plan as text for a terminal. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator

from ...economics.model import Model
from ...economics.sizes import format_gigabytes, format_parameters
from ...publish.wording import DASH, shown, wrap
from .estimates import Drafter, MemoryBudget
from .planning import Plan


def render(plan: Plan) -> str:
    """Return the report on `plan`."""
    word = plan.conclusion.replace("_", " ").upper()
    verdict = f"{word}  {plan.question.method.name}, K = {plan.outlook.k}; {plan.reason}"
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
        f"    --speculative-config {shlex.quote(json.dumps(dict(plan.speculative_config)))}",
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
        f"{gpus.count} x {gpus.memory_bytes / 1e9:g} GB = {format_gigabytes(gpus.total)}, of which vLLM may "
        f"use {gpus.utilization:g} = {format_gigabytes(gpus.usable)} (GB = 1e9 bytes)"
    )
    yield from wrap(text, "  GPUs    ", 10)


def _model(model: Model) -> str:
    active = ""
    if model.active_parameters < model.parameters:
        active = f", of which a token passes through {format_parameters(model.active_parameters)}"
    return (
        f"{format_parameters(model.parameters)} parameters {model.source}{active}; "
        f"{model.precision.name} {model.precision_source}: {format_gigabytes(model.weights)}"
    )


def _memory(plan: Plan) -> Iterator[str]:
    memory, context = plan.memory, plan.question.load.context
    weights, draft = memory.target_weights_bytes, memory.draft_weights_bytes
    both = DASH if draft is None else format_gigabytes(weights + draft)
    yield f"  {'memory':<28}{'without drafter':>18}{'with drafter':>18}"
    yield _memory_row("weights", format_gigabytes(weights), both)
    rows: dict[str, Callable[[MemoryBudget], str]] = {
        "KV budget": lambda room: format_gigabytes(room.kv_budget_bytes),
        "KV of a token": lambda room: shown(room.kv_bytes_per_token, "{:,.0f} bytes"),
        "tokens that fit": lambda room: shown(room.tokens, "{:,}"),
    }
    if context is not None:
        rows[f"requests of {context:,} tokens"] = lambda room: shown(room.requests, "{:,}")
    for name, cell in rows.items():
        yield _memory_row(name, cell(memory.before), cell(memory.after) if memory.after else DASH)
    for note in _notes(plan):
        yield from wrap(note, "    ", 4)


def _memory_row(name: str, before: str, after: str) -> str:
    return f"    {name:<26}{before:>18}{after:>18}"


def _notes(plan: Plan) -> Iterator[str]:
    memory, target = plan.memory, plan.question.target
    cached = f"Keys and values in {plan.question.kv_precision.name}. " if target.architecture else ""
    yield (
        f"{cached}Weights and budget are taken to split evenly over the GPUs. Activations and CUDA graphs "
        "(a few GB on each GPU) come off the budget and are not counted."
    )
    if target.architecture is None:
        yield "What a token takes needs the target's dimensions: --target-config."
    elif not memory.draft_kv_known:
        yield "The draft's own keys and values are not counted: their size needs --draft-config."


def _speedup(plan: Plan) -> Iterator[str]:
    outlook = plan.outlook
    yield "  expected speedup: tokens per step over the cost of a step"
    names = [f"{one.name} {one.acceptance:g}: {one.tokens:.2f} tokens" for one in outlook.assumptions]
    yield f"    {'batch':>6}{'step cost':>11}" + "".join(f"{name:>27}" for name in names)
    for row in outlook.rows:
        ranges = (f"{one.value:.2f}  ({one.low:.2f} to {one.high:.2f})" for one in row.speedups)
        yield f"    {row.batch:>6}{row.step_cost:>11.2f}" + "".join(f"{text:>27}" for text in ranges)
    for note in _notes_on_speedup(plan):
        yield from wrap(note, "    ", 4)


def _notes_on_speedup(plan: Plan) -> Iterator[str]:
    outlook, method = plan.outlook, plan.question.method
    yield (
        "Step cost is in plain steps of the same batch, and the tokens per step to break even. Profile "
        f"{outlook.profile}, taken to be right within {outlook.uncertainty:.0%}, for {outlook.context:,.0f} "
        f"tokens of context a request. {outlook.provenance}"
    )
    if plan.question.acceptance is None:
        yield f"The acceptances per token are assumptions ({method.acceptance_source}). Measure yours."
    if method.drafter is Drafter.LOOKUP:
        yield (
            f"Every step is taken to draft {outlook.k} tokens. {method.name} drafts fewer or none where it "
            "finds nothing, which costs less and gains less."
        )


def _rows(rows: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    for word, name, text in rows:
        yield from wrap(text, f"    {word:<9}{name:<24}", 37)
