"""Servers whose acceptance is known, and what the whole pipeline makes of their
counters.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from random import Random
from typing import Any

from msgspec.structs import replace

from support.builders import counters, process_reading
from vllm_specdec_exporter.commands.simulate.speculation import binomial
from vllm_specdec_exporter.economics.cost import Basis, CostProfile, thresholds_for
from vllm_specdec_exporter.economics.profiles import CostSettings
from vllm_specdec_exporter.economics.speculative_config import Speculation
from vllm_specdec_exporter.engines.reading import (
    EngineKey,
    EngineReading,
    Load,
    Reading,
    Steps,
)
from vllm_specdec_exporter.measures.measures import DraftShape
from vllm_specdec_exporter.observe.result import EngineResult
from vllm_specdec_exporter.observe.settings import Settings
from vllm_specdec_exporter.observe.state import EngineState

KEY = EngineKey("m", "0")


def survival_of(conditional: Sequence[float]) -> tuple[float, ...]:
    """The share of drafts accepted at each position, from the chance of each given the
    one before.
    """
    return tuple(accumulate(conditional, mul))


def drawn(rng: Random, conditional: Sequence[float], drafts: int) -> tuple[int, ...]:
    """Accepted drafts by position, at random: of those accepted so far, so many are
    accepted once more.
    """
    counts = []
    left = drafts
    for chance in conditional:
        left = binomial(rng, left, chance)
        counts.append(left)
    return tuple(counts)


def expected(survival: Sequence[float], drafts: float) -> tuple[float, ...]:
    """Accepted drafts by position as they are on average."""
    return tuple(ratio * drafts for ratio in survival)


def true_speedups(
    survival: Sequence[float], profile: CostProfile, batch: float
) -> list[float]:
    """The true speedup of every K from 0 up."""
    lengths = accumulate((1.0, *survival))
    return [length / profile.step_cost(k, batch) for k, length in enumerate(lengths)]


def settings_for(
    profile: CostProfile,
    method: str = "",
    k: int | None = None,
    basis: Basis = Basis.CALIBRATED,
    **more: Any,
) -> Settings:
    """What `serve` makes of a speculative config and a cost profile, by default
    calibrated on the machine.
    """
    document = {"method": method} if method else {}
    if k is not None:
        document["num_speculative_tokens"] = k
    if basis is Basis.CALIBRATED:  # then the size of the draft is in the measured costs
        size = profile.size_ratio or profile.typical_size_ratio or None
        profile = replace(profile, uncertainty=0.05, size_ratio=size)
    return Settings(
        costs=CostSettings(replace(profile, basis=basis)),
        thresholds=thresholds_for(profile, k, method),
        speculation=Speculation(
            True, method, num_speculative_tokens=k, document=json.dumps(document)
        ),
        **more,
    )


@dataclass
class Server:
    """A server with one engine that is polled; its counters grow by what is said before
    each poll.
    """

    settings: Settings
    k: int
    batch: float | None = 1.0
    time: float = 0.0
    states: dict[EngineKey, EngineState] = field(default_factory=dict)
    drafts: float = 0.0
    draft_tokens: float = 0.0
    positions: tuple[float, ...] = ()
    prompt_tokens: float | None = None
    requests: float | None = None
    step_seconds: float | None = None  # sum of the inter-token latency
    latest: EngineResult | None = None

    def __post_init__(self) -> None:
        self.positions = (0.0,) * self.k

    def add(
        self,
        drafts: float,
        positions: Sequence[float],
        draft_tokens: float | None = None,
    ) -> None:
        """Count further drafts, `positions` of which were accepted; full ones unless
        told otherwise.
        """
        self.drafts += drafts
        self.draft_tokens += drafts * self.k if draft_tokens is None else draft_tokens
        self.positions = tuple(
            a + b for a, b in zip(self.positions, positions, strict=True)
        )

    def poll(
        self, after: float = 0.0, shapes: Mapping[str, DraftShape] | None = None
    ) -> EngineResult:
        """Answer the exporter, so many seconds after the last answer; records tell the
        shapes of drafts.
        """
        self.time += after
        # The first token of a request comes from prefill.
        emitted = self.drafts + sum(self.positions) + (self.requests or 0.0)
        values = counters(
            self.drafts,
            self.positions,
            draft_tokens=self.draft_tokens,
            generation=emitted,
        )
        steps = Steps(
            step_seconds=self.step_seconds,
            step_observations=self.step_seconds and self.drafts,
            prompt_tokens=self.prompt_tokens,
            requests=self.requests,
        )
        reading = Reading(
            "vllm-v1",
            (EngineReading(KEY, values, Load(self.batch, 0, 0.1), steps=steps),),
        )
        now = self.time
        shapes = shapes or {}
        self.states, results = process_reading(
            self.states, reading, now, self.settings, shapes=shapes
        )
        self.latest = results[0]
        return self.latest


def judged(
    settings: Settings,
    positions: Sequence[float],
    drafts: float,
    batch: float = 1.0,
    draft_tokens: float | None = None,
) -> EngineResult:
    """What is published after one window that holds these drafts."""
    server = Server(settings, len(positions), batch)
    server.poll()
    server.add(drafts, positions, draft_tokens)
    return server.poll(after=settings.judged.seconds)
