"""vLLM's own series, as Prometheus has them where it scrapes vLLM as well as the exporter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class ServerPhase:
    """Some minutes of vLLM's own series of one engine, the same all through."""

    minutes: int  # how long; one sample each
    #: Requests per minute by the reason for which they ended; every reason of a later phase should be in the
    #: first one, too, if only at 0, as vLLM has it.
    finished: Mapping[str, float] = field(
        default_factory=lambda: {"stop": 60.0, "length": 0.0, "abort": 0.0, "error": 0.0, "repetition": 0.0}
    )
    #: Accepted tokens per minute at each position; none, and vLLM does not speculate.
    positions: tuple[float, ...] = (540, 420, 300)
    restart: bool = False  # whether the counters begin anew
    gone: bool = False  # whether nothing can be scraped


def counters(phase: ServerPhase) -> Iterator[tuple[tuple[str, str, str], float]]:
    """Yield what the rules use, by name, label and its value, each with what it grows by in a minute."""
    for reason, rate in phase.finished.items():
        yield ("request_success_total", "finished_reason", reason), rate
    for index, rate in enumerate(phase.positions):
        yield ("spec_decode_num_accepted_tokens_per_pos_total", "position", str(index)), rate
