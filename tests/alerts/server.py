"""vLLM's own series, as Prometheus has them where it scrapes vLLM as well as the exporter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Upper bounds of some of vLLM's buckets, in seconds.
FIRST_TOKEN_BOUNDS = (0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PER_OUTPUT_TOKEN_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class ServerPhase:
    """Some minutes of vLLM's own series of one engine, the same all through.

    Attributes:
        minutes: how long; one sample each.
        finished: requests per minute by the reason for which they ended; every reason of a later phase
            should be in the first one, too, if only at 0, as vLLM has it.
        first_token: shares of the requests by time to first token: the upper bound of its bucket, out of
            `FIRST_TOKEN_BOUNDS`; what is left over took longer than all of them.
        per_output_token: likewise by time per output token, out of `PER_OUTPUT_TOKEN_BOUNDS`.
        preemptions: per minute.
        positions: accepted tokens per minute at each position; none, and vLLM does not speculate.
        restart: whether the counters begin anew.
        gone: whether nothing can be scraped.
    """

    minutes: int
    finished: Mapping[str, float] = field(
        default_factory=lambda: {"stop": 60.0, "length": 0.0, "abort": 0.0, "error": 0.0, "repetition": 0.0}
    )
    first_token: Mapping[float, float] = field(default_factory=lambda: {0.1: 0.5, 0.25: 0.45, 0.5: 0.05})
    per_output_token: Mapping[float, float] = field(default_factory=lambda: {0.01: 0.4, 0.025: 0.6})
    preemptions: float = 0
    positions: tuple[float, ...] = (540, 420, 300)
    restart: bool = False
    gone: bool = False


def counters(phase: ServerPhase) -> Iterator[tuple[tuple[str, str, str], float]]:
    """Yield vLLM's counters by name, label and its value, each with what it grows by in a minute."""
    requests = sum(phase.finished.values())
    for reason, rate in phase.finished.items():
        yield ("request_success_total", "finished_reason", reason), rate
    for name, bounds, shares in (
        ("time_to_first_token_seconds", FIRST_TOKEN_BOUNDS, phase.first_token),
        ("request_time_per_output_token_seconds", PER_OUTPUT_TOKEN_BOUNDS, phase.per_output_token),
    ):
        for bound in bounds:
            below = sum(share for upper, share in shares.items() if upper <= bound)
            yield (f"{name}_bucket", "le", str(bound)), requests * below
        yield (f"{name}_bucket", "le", "+Inf"), requests
        yield (f"{name}_count", "", ""), requests
    yield ("num_preemptions_total", "", ""), phase.preemptions
    for index, rate in enumerate(phase.positions):
        yield ("spec_decode_num_accepted_tokens_per_pos_total", "position", str(index)), rate
