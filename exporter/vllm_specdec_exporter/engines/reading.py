"""The normal form of one response of an inference server, the same for all dialects.

Counters are cumulative values as printed by the server. ``None`` means a missing
series, which differs from 0.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from ..exposition.histogram import Histogram


class EngineKey(NamedTuple):
    """The identity of an engine, as published; an empty string where the server has no
    label.
    """

    model_name: str = ""
    #: The label `engine`, and after it every other label that separates engines, as
    #: ``name=value``, joined by commas. In their values ``%``, ``,`` and ``=`` are
    #: percent-encoded.
    engine: str = ""

    @property
    def server(self) -> str:
        """The part that engines of one server share: the labels that separate, without
        `engine`.
        """
        return ",".join(part for part in self.engine.split(",") if "=" in part)


class Counters(Struct, frozen=True):
    """Cumulative counters of one engine.

    Attributes:
        drafts: verifications of a draft (one request in one step with drafted tokens).
        draft_tokens: drafted tokens that were verified.
        accepted_tokens: drafted tokens that were accepted; the bonus token does not
            count.
        accepted_tokens_per_position: at index i, the drafts in which position i was
            accepted. Empty without such series, or if a position is missing.
        generation_tokens: all generated tokens.
        created: creation time of the counters, Unix seconds, if the server prints it.
        resolution: relative rounding step of the printed totals; 0 if they are exact.
        drafted_tokens_per_position: at index i, the drafts that had a token at position
            i. Empty if the engine does not count them; a missing deep position had
            none.
    """

    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_tokens_per_position: tuple[float, ...] = ()
    generation_tokens: float | None = None
    created: float | None = None
    resolution: float = 0.0
    drafted_tokens_per_position: tuple[float, ...] = ()


class Load(Struct, frozen=True):
    """Load of one engine: requests in the batch and in the queue, used share of the KV
    cache (0 to 1).
    """

    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_usage_ratio: float | None = None


class Steps(Struct, frozen=True):
    """Cumulative totals of engine steps, as far as the engine prints them."""

    #: Sum of vLLM's inter-token latency, which has one observation for each request and
    #: step after its first token, however many tokens the step emits.
    step_seconds: float | None = None
    step_observations: float | None = None  # their number
    #: Prompt tokens, of which a step may compute many.
    prompt_tokens: float | None = None
    #: Requests that got their first token; `prompt_tokens` counts at the same moment.
    requests: float | None = None
    #: Requests that ended with a stop string or an end-of-sequence token.
    stopped_requests: float | None = None
    draft_seconds: float | None = None  # time of the accelerator for drafting
    verify_seconds: float | None = None  # likewise for verification
    #: Prompt tokens that were looked up in the prefix cache, and those found there.
    prefix_cache_queries: float | None = None
    prefix_cache_hits: float | None = None


class Drafting(Struct, frozen=True):
    """How an engine drafts now, as far as its gauges say; ``None`` for what it does not
    print.
    """

    #: Tokens drafted for a verification; 0 while it drafts none.
    num_speculative_tokens: float | None = None
    #: Tokens of a verification, with the one that is always computed; 0 without
    #: speculation.
    verified_tokens: float | None = None
    #: Steps of a draft; fewer than its tokens for a tree or a block.
    draft_steps: float | None = None
    method: str = ""  # how drafts are made, empty if it is not known
    topk: int | None = None  # branches of a draft: above 1 it is a tree

    @property
    def tree(self) -> bool:
        """Whether drafts are trees, whose tokens are alternatives to each other; may
        be, without top-k.
        """
        if self.topk is not None:
            return self.topk > 1
        return bool(self.num_speculative_tokens) and self.draft_steps not in (
            None,
            self.num_speculative_tokens,
        )

    @property
    def depth(self) -> float | None:
        """The most tokens of a draft that can be accepted: of a tree one per step."""
        # N-gram drafts are trees without steps, and of an unknown method it is not
        # known.
        steps_count = bool(self.topk) and self.method not in ("", "ngram")
        if self.tree and steps_count and self.draft_steps:
            return self.draft_steps
        return self.num_speculative_tokens


class Lifetime(Struct, frozen=True):
    """The two gauges of vLLM V0: means over the server's whole life."""

    lifetime_acceptance_ratio: float | None = None  # accepted over draft tokens
    #: Emitted tokens over the maximum, K + 1 per draft.
    lifetime_efficiency: float | None = None


class Latencies(Struct, frozen=True):
    """Cumulative latency histograms of finished requests, in seconds; ``None`` for a
    missing series.
    """

    #: From the arrival of a request to its first token.
    time_to_first_token: Histogram | None = None
    #: Mean over a request's tokens after the first. Not vLLM's `inter_token_latency`,
    #: which observes steps: it grows with speculation, because a step that emits three
    #: tokens is one observation.
    time_per_output_token: Histogram | None = None
    end_to_end: Histogram | None = None  # from the arrival of a request to its end


class EngineReading(Struct, frozen=True):
    """The values of one engine in one response."""

    key: EngineKey  # the identity labels
    counters: Counters = Counters()  # cumulative counters
    load: Load = Load()  # gauges
    lifetime: Lifetime | None = None  # vLLM V0 only
    latencies: Latencies | None = None  # ``None`` if they were not read
    #: Whether counters increase only when a request finishes.
    counts_finished_requests: bool = False
    #: Whether a part of the drafts may not be counted, although their tokens are.
    misses_drafts: bool = False
    #: Descriptions of invalid series, whose values were ignored.
    defects: tuple[str, ...] = ()
    steps: Steps = Steps()  # totals of engine steps
    #: How it drafts now; ``None`` for an engine whose counters show that.
    drafting: Drafting | None = None
    #: Whether accepted and draft tokens are computed from other counters, so that they
    #: may fall.
    derived: bool = False
    uncounted: str = ""  # why its drafts cannot be counted, empty if they can

    @property
    def shows_speculation(self) -> bool:
        """Whether these series prove that speculation is configured.

        Counters of 0 do not: the Rust front end and llama.cpp print them without
        speculation too. Position series do.
        """
        counters = self.counters
        return bool(
            counters.accepted_tokens_per_position
            or counters.drafts
            or self.lifetime
            or (self.drafting and self.drafting.verified_tokens)
        )


class Reading(Struct, frozen=True):
    """One response of a server."""

    dialect: str  # the name of its dialect
    engines: tuple[EngineReading, ...]  # one reading per engine, sorted by key
    #: False for diffusion models, whose counters do not count speculative decoding.
    speculative: bool = True
    #: What tells this process of the server from others, empty if it is not known.
    process: str = ""
    routed: bool = False  # whether it came through a router that loads models

    def engines_beside(self, key: EngineKey) -> int:
        """Return the number of engines of this model that its server has, with this
        one.
        """
        server = key.server
        return sum(
            engine.key.model_name == key.model_name and engine.key.server == server
            for engine in self.engines
        )


def sum_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values, ``None`` if all are unknown."""
    present = [value for value in values if value is not None]
    if present:
        return math.fsum(present)
    return None
