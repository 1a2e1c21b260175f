"""Planning: from what is known of a deployment to everything that the report says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from ...economics.hardware import Machine
from ...economics.model import Model
from ...economics.profiles import for_method
from ...economics.sizes import Precision
from .checks import Answer, Check, Checklist, Facts, Verdict, check_all, fill_in
from .estimates import (
    Gpus,
    Memory,
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
    draft: Model | None  # the drafter; ``None`` where it has no weights or their size is not known
    gpus: Gpus  # what it runs on
    kv_precision: Precision  # how keys and values are cached
    k: int | None = None  # number of speculative tokens, from 1 up; ``None`` for what is usual
    acceptance: float | None = None  # expected per token, 0 to 1; ``None`` where not known
    load: PlannedLoad = PlannedLoad()  # what is to be served
    facts: Facts = field(default_factory=Facts)  # what else is known of the deployment
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
    profile = choose_profile(method, target, draft, question.hardware).at_context(load.context)
    k = question.k or for_method(method.name).typical_k
    kv_bytes = question.kv_precision.bytes_per_parameter
    memory = account(target, draft, method.drafter, question.gpus, load, kv_bytes)
    outlook = look_ahead(method, profile, k, question.acceptance, load.batch)
    facts = question.facts
    checks = tuple(check_all(method, target, draft, memory, load, outlook, facts, question.target_name))
    checklist = fill_in(memory, load, facts)
    conclusion, reason = conclude(checks, checklist)
    config = speculative_config(method, k, question.drafter_name)
    return Plan(question, conclusion, reason, memory, checks, checklist, outlook, config)


def conclude(checks: tuple[Check, ...], checklist: Checklist) -> tuple[Conclusion, str]:
    """Return the verdict on checks and checklist, and the reasons."""
    against = {
        "fails": [check.name for check in checks if check.verdict is Verdict.FAIL],
        "speaks against it": [item.name for item in checklist.leave_off if item.holds is Answer.YES],
    }
    if any(against.values()):
        return Conclusion.LEAVE_OFF, _listed(against)
    unknown = [check.name for check in checks if check.verdict is Verdict.UNKNOWN]
    items = (*checklist.use, *checklist.leave_off)
    doubts = {
        "warns": [check.name for check in checks if check.verdict is Verdict.WARN],
        "not as wanted": [item.name for item in checklist.use if item.holds is Answer.NO],
        "not known": unknown + [item.name for item in items if item.holds is Answer.UNKNOWN],
    }
    if any(doubts.values()):
        return Conclusion.MEASURE_FIRST, f"nothing speaks against it; {_listed(doubts)}"
    return Conclusion.USE, "every check passes and every condition for it holds"


def _listed(points: Mapping[str, list[str]]) -> str:
    lists = {words: ", ".join(dict.fromkeys(names)) for words, names in points.items() if names}
    return "; ".join(f"{words}: {names}" for words, names in lists.items())


def speculative_config(method: Method, k: int, name: str = "") -> dict[str, object]:
    """Return the object for vLLM's ``--speculative-config``; an empty `name` means an unknown drafter."""
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
        "target": _model(question.target),
        "draft": None if question.draft is None else _model(question.draft),
        "gpus": asdict(question.gpus),
        "load": asdict(question.load),
        "facts": asdict(question.facts),
        "memory": {"kv_precision": question.kv_precision.name, **asdict(plan.memory)},
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
