"""A plan as one JSON object. Sizes are in bytes; what is not known is null."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .memory import Memory, Room
    from .model import Model
    from .planning import Plan


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


def _room(room: Room) -> dict[str, object]:
    return {
        "kv_budget_bytes": room.budget,
        "kv_bytes_per_token": room.bytes_per_token,
        "tokens": room.tokens,
        "requests": room.requests,
        "fits": room.fits,
    }
