"""The normal form of one response of an inference server, the same for all dialects.

Counters are cumulative values as printed by the server. ``None`` means a missing series, which differs from
0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..exposition.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable


class Server(NamedTuple):
    """A kind of server: its name, and the option that makes it speculate."""

    name: str
    option: str


VLLM = Server("vLLM", "--speculative-config")
SGLANG = Server("SGLang", "--speculative-algorithm")


class EngineKey(NamedTuple):
    """The identity labels of an engine; an empty string for a missing label."""

    model_name: str = ""
    engine: str = ""


@dataclass(frozen=True, slots=True)
class Counters:
    """Cumulative counters of one engine.

    Attributes:
        drafts: verifications of a draft (one request in one step with drafted tokens).
        draft_tokens: drafted tokens that were verified.
        accepted_tokens: drafted tokens that were accepted; the bonus token does not count.
        accepted_tokens_per_position: at index i, the drafts in which position i was accepted. Empty without
            such series, or if a position is missing.
        generation_tokens: all generated tokens.
        created: creation time of the counters, Unix seconds, if the server prints it.
        resolution: relative rounding step of the printed totals; 0 if they are exact.
        drafted_tokens_per_position: at index i, the drafts that had a token at position i. Empty if the
            engine does not count them; a missing deep position had none.
    """

    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_tokens_per_position: tuple[float, ...] = ()
    generation_tokens: float | None = None
    created: float | None = None
    resolution: float = 0.0
    drafted_tokens_per_position: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """Load of one engine: requests in the batch and in the queue, used share of the KV cache (0 to 1)."""

    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_usage_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """Cumulative totals of engine steps, as far as the engine prints them.

    Attributes:
        step_seconds: sum of vLLM's inter-token latency, which has one observation for each request and step
            after its first token, however many tokens the step emits.
        step_observations: their number.
        prompt_tokens: prompt tokens, of which a step may compute many.
        requests: requests that got their first token; `prompt_tokens` counts at the same moment.
        draft_seconds: time of the accelerator for drafting.
        verify_seconds: likewise for verification.
    """

    step_seconds: float | None = None
    step_observations: float | None = None
    prompt_tokens: float | None = None
    requests: float | None = None
    draft_seconds: float | None = None
    verify_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Drafting:
    """How an engine drafts now, as far as its gauges say; ``None`` for what it does not print.

    Attributes:
        num_speculative_tokens: tokens drafted for a verification; 0 while it drafts none.
        verified_tokens: tokens of a verification, with the one that is always computed; 0 without
            speculation.
        draft_steps: depth of a draft; fewer than its tokens for a tree.
        method: how drafts are made, empty if it is not known.
        topk: branches of a draft: above 1 it is a tree.
    """

    num_speculative_tokens: float | None = None
    verified_tokens: float | None = None
    draft_steps: float | None = None
    method: str = ""
    topk: int | None = None

    @property
    def tree(self) -> bool:
        """Whether drafts are trees, whose tokens are alternatives to each other."""
        if self.topk is not None:
            return self.topk > 1
        return (
            bool(self.draft_steps and self.num_speculative_tokens)
            and self.draft_steps != self.num_speculative_tokens
        )


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The two gauges of vLLM V0: means over the server's whole life.

    Attributes:
        lifetime_acceptance_ratio: accepted over draft tokens.
        lifetime_efficiency: emitted tokens over the maximum, K + 1 per draft.
    """

    lifetime_acceptance_ratio: float | None = None
    lifetime_efficiency: float | None = None


@dataclass(frozen=True, slots=True)
class Latencies:
    """Cumulative latency histograms of finished requests, in seconds; ``None`` for a missing series.

    Attributes:
        time_to_first_token: from the arrival of a request to its first token.
        time_per_output_token: mean over a request's tokens after the first. Not vLLM's
            `inter_token_latency`, which observes steps: it grows with speculation, because a step that emits
            three tokens is one observation.
        end_to_end: from the arrival of a request to its end.
    """

    time_to_first_token: Histogram | None = None
    time_per_output_token: Histogram | None = None
    end_to_end: Histogram | None = None


@dataclass(frozen=True, slots=True)
class EngineReading:
    """The values of one engine in one response.

    Attributes:
        key: the identity labels.
        counters: cumulative counters.
        load: gauges.
        lifetime: vLLM V0 only.
        latencies: ``None`` if they were not read.
        counts_finished_requests: whether counters increase only when a request finishes.
        defects: descriptions of invalid series, whose values were ignored.
        steps: totals of engine steps.
        drafting: how it drafts now; ``None`` for an engine whose counters show that.
        derived: whether accepted and draft tokens are computed from other counters, so that they may fall.
        uncounted: why its drafts cannot be counted, empty if they can.
    """

    key: EngineKey
    counters: Counters = Counters()
    load: Load = Load()
    lifetime: Lifetime | None = None
    latencies: Latencies | None = None
    counts_finished_requests: bool = False
    defects: tuple[str, ...] = ()
    steps: Steps = Steps()
    drafting: Drafting | None = None
    derived: bool = False
    uncounted: str = ""

    @property
    def shows_speculation(self) -> bool:
        """Whether these series prove that speculation is configured.

        Counters of 0 do not: the Rust front end and llama.cpp print them without speculation too. Position
        series do.
        """
        counters = self.counters
        return bool(
            counters.accepted_tokens_per_position
            or counters.drafts
            or self.lifetime
            or (self.drafting and self.drafting.verified_tokens)
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """One response of a server.

    Attributes:
        dialect: the name of its dialect.
        engines: one reading per engine, sorted by key.
        speculative: false for diffusion models, whose counters do not count speculative decoding.
        server: the kind of server.
        life: what tells this process of the server from others, empty if it is not known.
    """

    dialect: str
    engines: tuple[EngineReading, ...]
    speculative: bool = True
    server: Server = VLLM
    life: str = ""

    @property
    def vllm(self) -> bool:
        """Whether the server is vLLM, of any version."""
        return self.dialect.startswith("vllm")


def sum_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values, ``None`` if all are unknown."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None
