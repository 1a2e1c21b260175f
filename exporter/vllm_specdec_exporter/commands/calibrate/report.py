"""A calibrated profile as a file and as a table. Pure."""

from collections.abc import Sequence

import yaml
from msgspec.structs import asdict

from ...economics.calibration import StepTime, largest_error
from ...economics.cost import CostProfile

_TABLE_TITLE = (
    "mean acceptance length at which speculation breaks even, by K and requests in the "
    "batch"
)


def document(profile: CostProfile) -> str:
    """Return the file for `--cost.file`."""
    draft = asdict(profile.draft)
    entry = {
        "provenance": profile.provenance,
        "unit": "seconds",
        "basis": profile.basis.value,
        "batches": [round(requests, 1) for requests in profile.batches or ()],
        "contexts": [round(tokens, 1) for tokens in profile.contexts or ()],
        "methods": list(profile.methods),
        "cheap": profile.cheap,
        "typical_k": profile.typical_k,
        "uncertainty": round(profile.uncertainty, 4),
        "context_tokens": round(profile.context_tokens, 1),
        "target": asdict(profile.target),
        # What was fitted: the others belong to profiles of other origin.
        "draft": {name: draft[name] for name in ("fixed", "per_position", "per_token")},
    }
    return yaml.safe_dump(
        {"profiles": {profile.name: entry}}, sort_keys=False, allow_unicode=True
    )


def table(profile: CostProfile, rows: Sequence[StepTime]) -> str:
    """Return the measured and fitted step costs, and the tokens per draft to break
    even, by K and batch.
    """
    measured_k = round(max(row.k for row in rows))
    batches = sorted({round(row.batch) for row in rows})
    lines = [
        _TABLE_TITLE,
        "",
        "     K" + "".join(f"{batch:>8}" for batch in batches),
    ]
    for k in sorted({1, 2, 3, 5, 8, measured_k} - {0}):
        costs = [f"{profile.step_cost(k, batch):>8.2f}" for batch in batches]
        lines.append(f"{k:>6}" + "".join(costs))
    lines.append("")
    lines.append(
        f"largest error {largest_error(profile, rows):.0%}; a step's cost is known "
        f"within {profile.uncertainty:.0%}"
    )
    return "\n".join(lines)
