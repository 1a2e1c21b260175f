"""The case: the input of the judgement of one engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..economics.speculative_config import Speculation
from ..engines.reading import VLLM

if TYPE_CHECKING:
    from ..config.thresholds import Thresholds
    from ..economics.cost import CostProfile
    from ..engines.reading import Counters, Server
    from ..measures.measures import DraftShape, Measures
    from .activity import Activity


@dataclass(frozen=True, slots=True)
class Case:
    """One engine at the newest sample.

    Attributes:
        activity: whether the engine speculates.
        measures: the judged window, ``None`` before it has two samples.
        counters: cumulative counters at its end.
        k: the present K, ``None`` where it is not known.
        method: the speculative method, empty if not known.
        profile: the cost of steps.
        thresholds: the thresholds in force.
        other_windows: the other windows, to check whether acceptance is steady.
        speculation: the server's ``--speculative-config``, if given.
        batch_sizes: the least and the most requests running in the window.
        settled: whether the window is full.
        server: the kind of server.
        vllm: whether the server is a vLLM, which accepts a ``--speculative-config``.
        engines: engines that serve the model: ranks of data parallelism.
        shape: draft lengths by K, from records of single requests.
        speculative: False for a server whose counters are not those of speculative decoding.
        defects: what was inconsistent in the newest sample.
        mismatch: why the baseline does not fit the engine, empty if it does.
        unadvisable: why no K can be advised, whatever is counted.
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
    server: Server = VLLM
    vllm: bool = True
    engines: int = 1
    shape: DraftShape | None = None
    speculative: bool = True
    defects: tuple[str, ...] = ()
    mismatch: str = ""
    unadvisable: str = ""
    unmeasured: str = ""
