"""The normal form: what one answer of an inference server says, whatever dialect it was written in.

Everything behind the dialects works on these types alone. Counters are cumulative values as the server
gave them; ``None`` stands for a series that is not there, which is not the same as 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..exposition.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable


class EngineKey(NamedTuple):
    """The identity of an engine as the server labels it; an empty string where it has no such label."""

    model_name: str = ""
    engine: str = ""


@dataclass(frozen=True, slots=True)
class Counters:
    """Cumulative counters of one engine.

    Attributes:
        drafts: verifications of a draft (one request in one step with drafted tokens).
        draft_tokens: drafted tokens that were verified.
        accepted_tokens: drafted tokens that were accepted; the bonus token does not count.
        accepted_tokens_per_position: at index i, the drafts in which position i was accepted. Empty when
            the server gives no such series, or gives them with holes.
        generation_tokens: tokens generated, in all.
        created: Unix time in seconds at which the counters began, where the server says so.
        resolution: relative step in which the totals are printed; 0 where they are exact.
    """

    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_tokens_per_position: tuple[float, ...] = ()
    generation_tokens: float | None = None
    created: float | None = None
    resolution: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """How busy one engine is.

    Attributes:
        requests_running: requests in the batch.
        requests_waiting: requests in the queue.
        kv_cache_usage_ratio: used share of the KV cache, 0 to 1.
    """

    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_usage_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The two gauges of vLLM V0: means over the server's whole life.

    Attributes:
        lifetime_acceptance_ratio: accepted over drafted tokens.
        lifetime_efficiency: emitted tokens over the most possible, which is K + 1 a draft.
    """

    lifetime_acceptance_ratio: float | None = None
    lifetime_efficiency: float | None = None


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long finished requests took, in seconds, cumulative; ``None`` where the server has no such series.

    Attributes:
        time_to_first_token: from the arrival of a request to its first token.
        time_per_output_token: mean over a request's tokens behind the first. Not vLLM's
            `inter_token_latency`, which counts steps: a step that emits three tokens counts once there, so
            speculation makes it longer, not shorter.
        end_to_end: from the arrival of a request to its end.
    """

    time_to_first_token: Histogram | None = None
    time_per_output_token: Histogram | None = None
    end_to_end: Histogram | None = None


@dataclass(frozen=True, slots=True)
class EngineReading:
    """What one answer says of one engine.

    Attributes:
        key: the identity labels.
        counters: cumulative counters.
        load: gauges of the moment.
        lifetime: vLLM V0 only.
        latencies: only where they were asked for.
        counts_finished_requests: counters move only when a request ends, so their rest says little.
        defects: what was wrong with this engine's series, in words; each was left out, not guessed.
    """

    key: EngineKey
    counters: Counters = Counters()
    load: Load = Load()
    lifetime: Lifetime | None = None
    latencies: Latencies | None = None
    counts_finished_requests: bool = False
    defects: tuple[str, ...] = ()

    @property
    def shows_speculation(self) -> bool:
        """Whether these series prove that speculation is configured.

        Counters that stand at 0 prove nothing: the Rust front end and llama.cpp print them for every
        server. Position series do, because a server without speculation has no positions to count.
        """
        counters = self.counters
        return bool(counters.accepted_tokens_per_position or counters.drafts or self.lifetime)


@dataclass(frozen=True, slots=True)
class Reading:
    """One answer of a server.

    Attributes:
        dialect: the name of the dialect it was written in.
        engines: one reading per engine, sorted by key.
        speculative: False where the counters exist but are not speculative decoding (diffusion models).
    """

    dialect: str
    engines: tuple[EngineReading, ...]
    speculative: bool = True


def sum_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of the values that are known, ``None`` where none is."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None
