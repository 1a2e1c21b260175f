"""The case: everything that the judgement of one engine rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..economics.speculative_config import Speculation

if TYPE_CHECKING:
    from ..config.thresholds import Thresholds
    from ..economics.cost import CostProfile
    from ..engines.reading import Counters
    from ..measures.measures import DraftShape, Measures
    from .activity import Activity


@dataclass(frozen=True, slots=True)
class Case:
    """One engine at the newest sample.

    Attributes:
        activity: what the engine does about speculation.
        measures: the judged window, ``None`` before it holds two samples.
        counters: cumulative counters at its end.
        k: the present K, ``None`` where it is not known.
        method: how drafts are made, empty where it is not known.
        profile: what steps cost.
        thresholds: the thresholds in force.
        other_windows: the other windows; quality needs them to see whether acceptance is steady.
        speculation: what the operator says of the server.
        batch_sizes: the least and the most requests that were seen running in the window.
        settled: whether the window is full.
        vllm: whether the server is a vLLM, which accepts a ``--speculative-config``.
        engines: engines that serve the model: ranks of data parallelism.
        shape: how long drafts are, from records of single requests.
        speculative: False for a server whose counters are not those of speculative decoding.
        defects: what was inconsistent in the newest sample.
        mismatch: why the baseline cannot be compared with the engine, empty where it can.
        unmeasured: why the window has no measured speedup although there is a baseline.
    """

    activity: Activity
    measures: Measures | None
    counters: Counters
    k: int | None
    method: str
    profile: CostProfile
    thresholds: Thresholds
    other_windows: tuple[Measures, ...] = ()
    speculation: Speculation = Speculation()
    batch_sizes: tuple[float, float] | None = None
    settled: bool = True
    vllm: bool = True
    engines: int = 1
    shape: DraftShape | None = None
    speculative: bool = True
    defects: tuple[str, ...] = ()
    mismatch: str = ""
    unmeasured: str = ""
