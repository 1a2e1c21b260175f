"""Planning: from what is known of a deployment to a verdict with its reasons, as JSON
and as text. Pure.
"""

import json
import shlex
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, to_builtins

from ...economics.model import Model
from ...publish import pages
from .checklist import Answer, Checklist, Item, fill_in
from .checks import Check, Verdict, check_all
from .estimates import Memory, SpeedupByBatch, account, look_ahead
from .question import Drafter, Method, Question


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


def speculative_config(method: Method, k: int, name: str) -> dict[str, object]:
    """Return the object for vLLM's ``--speculative-config``; an empty `name` means an
    unknown drafter.
    """
    config: dict[str, object] = {"method": method.name}
    if name or (method.named and method.drafter is not Drafter.LOOKUP):
        # No name is a guess: vLLM refuses the placeholder.
        config["model"] = name or "<draft model>"
    config["num_speculative_tokens"] = k
    if method.name in ("ngram", "ngram_gpu"):
        # Both: vLLM takes one that is given for the other too, and 5 and 5 for none, so
        # that only matches of exactly so many tokens draft. The longest of vLLM's page;
        # a single token matches by chance.
        config["prompt_lookup_min"] = 2
        config["prompt_lookup_max"] = 4
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


def render(plan: Plan) -> str:
    """Return the report on `plan`."""
    config = shlex.quote(json.dumps(dict(plan.speculative_config)))
    return pages.text("plan.txt", plan=plan, config=config)
