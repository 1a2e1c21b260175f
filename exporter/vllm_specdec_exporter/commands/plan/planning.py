"""Planning: from what is known of a deployment to everything that the report says."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from .checklist import Answer, Checklist, Facts, fill_in
from .checks import Check, Verdict, check_all, check_known_problems
from .estimates import (
    Gpus,
    Memory,
    PlannedLoad,
    SpeedupByBatch,
    account,
    choose_profile,
    look_ahead,
    usual_depth,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...economics.cost import CostProfile
    from ...economics.hardware import Machine
    from ...economics.model import Model
    from ...economics.sizes import Precision
    from .estimates import MemoryBudget
    from .methods import Method


#: Stands in the configuration where the drafter's name was not given.
NAMELESS = "<draft model>"


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
    draft: Model | None  # the drafter; ``None`` where it has no weights or their size is not known
    gpus: Gpus  # what it runs on
    kv_precision: Precision  # how keys and values are cached
    k: int | None = None  # number of speculative tokens, from 1 up; ``None`` for what is usual
    acceptance: float | None = None  # expected per token, 0 to 1; ``None`` where not known
    load: PlannedLoad = PlannedLoad()  # what is to be served
    facts: Facts = field(default_factory=Facts)  # what else is known of the deployment
    profile: CostProfile | None = None  # a cost profile to use instead of the method's
    drafter_name: str = ""  # what vLLM shall load as drafter, empty where not known
    target_name: str = ""  # what vLLM serves, empty where not known
    hardware: tuple[str, Machine] | None = None  # name and GPUs, ``None`` where not known


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
    speculative_config: Mapping[str, object]  # the object for vLLM's ``--speculative-config``


def make_plan(question: Question) -> Plan:
    """Return everything that paper can tell about `question`."""
    method, target, draft, load = question.method, question.target, question.draft, question.load
    profile = choose_profile(method, target, draft, question.profile, question.hardware)
    k = usual_depth(method) if question.k is None else question.k
    kv_bytes = question.kv_precision.bytes_per_parameter
    memory = account(target, draft, method.drafter, question.gpus, load, kv_bytes)
    outlook = look_ahead(method, profile, k, question.acceptance, load.batch)
    checks = check_all(method, target, draft, memory, load, outlook, question.facts)
    checks += check_known_problems(method, question.target_name)
    checklist = fill_in(method, memory, load, question.facts)
    conclusion, reason = conclude(checks, checklist)
    config = speculative_config(method, k, question.drafter_name)
    return Plan(question, conclusion, reason, memory, checks, checklist, outlook, config)


def conclude(checks: tuple[Check, ...], checklist: Checklist) -> tuple[Conclusion, str]:
    """Return the verdict on checks and checklist, and the sentence that says why."""
    failed = [check.name for check in checks if check.verdict is Verdict.FAIL]
    against = [item.name for item in checklist.leave_off if item.holds is Answer.YES]
    if failed or against:
        told = [_told(failed, "fails", "fail"), _told(against, "speaks against it", "speak against it")]
        return Conclusion.LEAVE_OFF, "; ".join(part for part in told if part)
    warned = [check.name for check in checks if check.verdict is Verdict.WARN]
    missed = [item.name for item in checklist.use if item.holds is Answer.NO]
    items = (*checklist.use, *checklist.leave_off)
    unknown = {check.name for check in checks if check.verdict is Verdict.UNKNOWN}
    unknown |= {item.name for item in items if item.holds is Answer.UNKNOWN}
    if not (warned or missed or unknown):
        return Conclusion.USE, "every check passes and every condition for it holds"
    told = [_told(warned, "warns", "warn"), _told(missed, "is not as wanted", "are not as wanted")]
    if unknown:
        told.append(f"{len(unknown)} {'points are' if len(unknown) > 1 else 'point is'} not known")
    return Conclusion.MEASURE_FIRST, f"nothing speaks against it, but {'; '.join(p for p in told if p)}"


def speculative_config(method: Method, k: int, name: str = "") -> dict[str, object]:
    """Return the object for vLLM's ``--speculative-config``; an empty `name` means an unknown drafter."""
    found: dict[str, object] = {"method": method.name}
    if name or (method.named and method.drafter != "lookup"):
        found["model"] = name or NAMELESS
    found["num_speculative_tokens"] = k
    if method.name in ("ngram", "ngram_gpu"):
        found["prompt_lookup_max"] = 4  # as vLLM's page on n-gram speculation has it
    return found


def _told(names: list[str], one: str, many: str) -> str:
    """Return ``a warns``, ``a and b warn``; nothing without names."""
    if not names:
        return ""
    *others, last = names
    return f"{', '.join(others)} and {last} {many}" if others else f"{last} {one}"


def to_document(plan: Plan) -> dict[str, object]:
    """Return `plan` in types that JSON has."""
    question = plan.question
    return {
        "conclusion": plan.conclusion,
        "reason": plan.reason,
        "method": question.method.name,
        "num_speculative_tokens": plan.outlook.k,
        "target": _model(question.target),
        "draft": None if question.draft is None else _model(question.draft),
        "gpus": {
            "count": question.gpus.count,
            "memory_bytes": question.gpus.memory,
            "utilization": question.gpus.utilization,
        },
        "load": asdict(question.load),
        "facts": asdict(question.facts),
        "memory": _memory(plan.memory, question.kv_precision.name),
        "checks": [asdict(check) for check in plan.checks],
        "checklist": asdict(plan.checklist),
        "speedup": asdict(plan.outlook),
        "speculative_config": dict(plan.speculative_config),
    }


def _model(model: Model) -> dict[str, object]:
    return {
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "precision": model.precision.name,
        "bytes_per_parameter": model.precision.bytes_per_parameter,
        "weights_bytes": model.weights,
        "source": model.source,
        "precision_source": model.precision_source,
        "estimated": model.estimated,
        "architecture": None if model.architecture is None else asdict(model.architecture),
    }


def _memory(memory: Memory, kv_precision: str) -> dict[str, object]:
    return {
        "total_bytes": memory.total,
        "usable_bytes": memory.usable,
        "target_weights_bytes": memory.target,
        "target_share": memory.target_share,
        "draft_weights_bytes": memory.draft,
        "draft_share": memory.draft_share,
        "kv_precision": kv_precision,
        "draft_kv_known": memory.draft_kv_known,
        "before": _room(memory.before),
        "after": None if memory.after is None else _room(memory.after),
    }


def _room(room: MemoryBudget) -> dict[str, object]:
    return {
        "kv_budget_bytes": room.budget,
        "kv_bytes_per_token": room.bytes_per_token,
        "tokens": room.tokens,
        "requests": room.requests,
        "fits": room.fits,
    }
