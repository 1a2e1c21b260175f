"""The return on speculation, as published.

::

    benefit = (speedup - 1) x throughput without speculation
    cost    = memory of the draft model + compute overhead
    return  = benefit / cost

The published form adds gigabytes to compute. Here each is a share, so that they can be added: the benefit of
the throughput without speculation, the memory of the GPUs' memory, the overhead of a plain step's time. A
return of 3 reads: for every percent of the machine that speculation takes, it gives three percent of
throughput. Its speedup is the mean acceptance length, since the overhead stands among the costs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Return:
    """What speculation gives and takes.

    Attributes:
        benefit_tokens_per_second: further tokens per second, before overhead.
        cost_ratio: share of the machine that it takes: memory plus compute overhead.
        return_ratio: relative benefit over relative cost; below 1 it takes more than it gives. ``None``
            where it costs nothing.
    """

    benefit_tokens_per_second: float | None = None
    cost_ratio: float | None = None
    return_ratio: float | None = None


def return_on_speculation(
    length: float, step_cost: float, memory_ratio: float, baseline_tokens_per_second: float
) -> Return:
    """Return the return on speculation.

    Args:
        length: mean acceptance length, the published speedup.
        step_cost: time of a step with drafts in plain steps; what exceeds 1 is the overhead.
        memory_ratio: memory of the draft model over the memory of the GPUs, 0 to 1.
        baseline_tokens_per_second: throughput without speculation at the same load.
    """
    cost = memory_ratio + max(0.0, step_cost - 1)
    return Return(
        benefit_tokens_per_second=(length - 1) * baseline_tokens_per_second,
        cost_ratio=cost,
        return_ratio=(length - 1) / cost if cost > 0 else None,
    )
