"""The dialects: every table of `dialects.toml`, and the formulas of what servers do not
print.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from .dialect import DRAFTED_PER_POSITION, MAX_POSITIONS, PER_POSITION, Dialect

#: What SGLang counts when a request finishes: one token of its prefill, and of each
#: verification the accepted tokens and one more. A retracted request has another
#: prefill.
_SGLANG_DERIVED = {
    # These series appear with the first finished request, drafts with the first that
    # was speculated.
    "generation_tokens": lambda v: v.get("generation_tokens", 0.0),
    "requests": lambda v: v.get(
        "requests", 0.0 if not v["generation_tokens"] else None
    ),
    "drafts": lambda v: v.get("drafts", 0.0 if not v["generation_tokens"] else None),
    "accepted_tokens": lambda v: (
        v["generation_tokens"] - v["requests"] - v["drafts"] - v.get("retractions", 0.0)
    ),
    "num_speculative_tokens": lambda v: max(0.0, v["verified_tokens"] - 1),
    "draft_tokens": lambda v: (
        v["drafts"] * v["num_speculative_tokens"]
        if v["draft_steps"] == v["num_speculative_tokens"]
        else None
    ),
}


def _whole(text: str) -> float | None:
    if text.isascii() and text.isdecimal() and len(text) < 4:
        return float(text)
    return None


def _padded(v: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the accepted tokens of every position:

    TensorRT-LLM does not print a count of 0.
    """
    accepted: tuple[float, ...] = v.get(PER_POSITION, ())
    k = max(
        len(v[DRAFTED_PER_POSITION]),
        min(int(v.get("num_speculative_tokens", 0)), MAX_POSITIONS),
    )
    return accepted + (0.0,) * (k - len(accepted))


def _tensorrt_drafts(v: Mapping[str, Any]) -> float | None:
    """Return the drafts.

    Without any, the other counters show whether the server counts them.
    """
    if DRAFTED_PER_POSITION in v:
        drafts: float = v[DRAFTED_PER_POSITION][0]
        return drafts
    if "generation_tokens" in v and not v.get("drafted_in_iterations"):
        return 0.0
    return None


_TENSORRT_DERIVED = {
    "num_speculative_tokens": lambda v: _whole(v["spec_num_tokens"]),
    "verified_tokens": lambda v: (
        v["num_speculative_tokens"] + 1 if v["spec_enabled"].lower() == "true" else 0.0
    ),
    "method": lambda v: v["spec_method"].lower(),
    "drafts": _tensorrt_drafts,
    "draft_tokens": lambda v: v["drafts"] and sum(v[DRAFTED_PER_POSITION]),
    "accepted_tokens": lambda v: v["drafts"] and sum(_padded(v)),
    PER_POSITION: _padded,
}

#: By dialect: the formulas of `Dialect.derived`.
_DERIVED: Mapping[str, Mapping[str, Any]] = {
    "sglang": _SGLANG_DERIVED,
    "trtllm": _TENSORRT_DERIVED,
}


def _load() -> Iterator[Dialect]:
    document = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    for name, entry in document["dialects"].items():
        row = {
            "groups": (),
            "series": {},
            **document["dialects"].get(entry.pop("like", ""), {}),
            **entry,
        }
        groups = [
            *(document["groups"][group] for group in row.pop("groups")),
            row.pop("series"),
        ]
        series = {field: names for group in groups for field, names in group.items()}
        if unknown := row.keys() - Dialect.__dataclass_fields__.keys():
            raise ValueError(f"dialect {name}: unknown: {', '.join(sorted(unknown))}")
        dialect = msgspec.convert({**row, "name": name, "series": series}, Dialect)
        yield replace(dialect, derived=_DERIVED.get(name, {}))


#: Every dialect, in the order in which they are tried.
DIALECTS: tuple[Dialect, ...] = tuple(
    sorted(_load(), key=lambda d: (-d.priority, d.name))
)
