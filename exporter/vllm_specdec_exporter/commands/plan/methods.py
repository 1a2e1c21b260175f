"""Speculation methods: what each needs, its usual K, what acceptance to assume, and the size of its heads.

The assumed acceptances are for planning only: they span what was published, or are marked as guesses. A
measurement on the traffic to be served replaces them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ...economics.model import count_eagle, count_eagle3, count_medusa, count_mtp, from_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...economics.architecture import Architecture
    from ...economics.model import Model
    from ...economics.sizes import Precision


class Drafter(StrEnum):
    """What does the drafting."""

    MODEL = "model"
    """A model of its own."""
    HEAD = "head"
    """Layers trained for this very target."""
    LOOKUP = "lookup"
    """A search in what was written before; no weights."""


@dataclass(frozen=True, slots=True)
class Method:
    """A speculation method."""

    name: str  # as in vLLM's ``--speculative-config``
    drafter: Drafter
    cautious: float  # per-token acceptance to assume where little is known, 0 to 1
    good: float  # per-token acceptance where all goes well, 0 to 1
    acceptance_source: str  # where these two come from
    shallowest: int = 1  # the least K that is usual
    deepest: int = 0  # the greatest K that is usual; 0 where no range is published
    depth_source: str = ""  # where the range comes from
    #: Parameters of the heads over the target's where no size is given; ``None``: not known.
    share: float | None = None
    share_source: str = ""  # where the share comes from
    per_token: bool = False  # whether `share` is for each of K heads
    named: bool = True  # whether vLLM wants the drafter's name under ``model``


_EAGLE_SHARE = (
    "EAGLE paper (arXiv 2401.15077): 0.24B for 7B to 0.99B for 70B, 3.4 to 1.4 %; the larger is taken"
)
_TYPICAL = "as published"

_ALL = (
    Method(
        "draft_model",
        Drafter.MODEL,
        0.5,
        0.8,
        "Leviathan et al. 2023, table 2: 0.53 to 0.82 by task, temperature and draft",
        2,
        3,
        _TYPICAL,
    ),
    Method(
        "eagle",
        Drafter.HEAD,
        0.55,
        0.7,
        "a span around vLLM issue 20780: 2.1 tokens at K = 2 on Llama-3.1-8B, about 0.65 a token",
        2,
        5,
        _TYPICAL,
        share=0.035,
        share_source=_EAGLE_SHARE,
    ),
    Method(
        "eagle3",
        Drafter.HEAD,
        0.6,
        0.75,
        "vLLM issue 20780: 2.4 tokens at K = 2 on Llama-3.1-8B, about 0.75 a token; 0.6 is a guess",
        2,
        5,
        _TYPICAL,
        share=0.053,
        share_source="by dimensions (arXiv 2503.01840): 0.42B for Llama-3.1-8B, 1.4B for 70B, 5.3 to 2 %; "
        "the larger is taken",
    ),
    Method(
        "mtp",
        Drafter.HEAD,
        0.7,
        0.9,
        "DeepSeek-V3 report: 0.85 to 0.90 for the second token; the cautious one is a guess",
        1,
        1,
        "vLLM's page on MTP: 1 is a good default to start with",
        share=0.021,
        share_source="DeepSeek-V3: 14B beside 671B, 2.1 %",
        named=False,
    ),
    Method(
        "medusa",
        Drafter.HEAD,
        0.3,
        0.6,
        "a guess",
        share=0.022,
        share_source="by dimensions (arXiv 2401.10774): 0.15B for each head on Vicuna-7B, 2.2 %",
        per_token=True,
    ),
    Method("mlp_speculator", Drafter.HEAD, 0.4, 0.6, "a guess around the published mean lengths 1.5 to 2.0"),
    *(
        Method(name, Drafter.LOOKUP, 0.2, 0.6, "a guess: prompts that are copied from gain, others do not")
        for name in ("ngram", "ngram_gpu")
    ),
    Method("suffix", Drafter.LOOKUP, 0.3, 0.7, "a guess: repetitive work gains, other work does not"),
)

#: By name.
METHODS: Mapping[str, Method] = {method.name: method for method in _ALL}


def estimate_head(method: Method, target: Model, precision: Precision, k: int) -> Model | None:
    """Return the heads of `method` for `target` by estimate, ``None`` where there is nothing to go by.

    With the dimensions of the target the estimate is closer. Medusa has a head for each of `k` tokens.
    """
    if method.drafter is not Drafter.HEAD:
        return None
    count = 0 if target.architecture is None else _count_head(method, target.architecture, k)
    source = "estimated from the target's dimensions"
    if not count:
        if method.share is None:
            return None
        count = round(method.share * target.parameters * (k if method.per_token else 1))
        source = f"estimated ({method.share_source})"
    return replace(from_parameters(count, precision), source=source, estimated=True)


def _count_head(method: Method, target: Architecture, k: int) -> int:
    match method.name:
        case "eagle":
            return count_eagle(target)
        case "eagle3":
            return count_eagle3(target)
        case "medusa":
            return count_medusa(target, k)
        case "mtp":
            return count_mtp(target)
        case _:
            return 0
