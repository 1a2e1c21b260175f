"""The case: the input of the judgement of one engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..economics.speculative_config import Speculation
from ..engines.reading import VLLM
from ..measures.measures import acceptance_lengths
from ..measures.uptime import Uptime

if TYPE_CHECKING:
    from ..config.thresholds import Thresholds
    from ..economics.cost import CostProfile
    from ..engines.reading import Counters, Server
    from ..measures.measures import DraftShape, Measures
    from .activity import Activity


#: Largest relative difference between a mean of recorded requests and that of all drafts at which the records
#: count as a sample of the same traffic.
ALIKE = 0.1


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
        other_windows: the other windows, to check whether acceptance is steady.
        speculation: the server's ``--speculative-config``, if given.
        batch_sizes: the least and the most requests running in the window.
        settled: whether the window is full.
        model_name: the served name.
        version: of the server, empty if not known.
        vllm: whether the server is a vLLM, which accepts a ``--speculative-config``.
        engines: engines that serve the model: ranks of data parallelism.
        shape: draft lengths by K, from records of single requests.
        speculative: False for a server whose counters are not those of speculative decoding.
        defects: what was inconsistent in the newest sample.
        mismatch: why the baseline does not fit the engine, empty if it does.
        unadvisable: why no K can be advised, whatever is counted.
        unmeasured: why the window has no measured speedup although there is a baseline.
        uptime: the hours of this life of the engine.
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
    model_name: str = ""
    version: str = ""
    server: Server = VLLM
    vllm: bool = True
    engines: int = 1
    shape: DraftShape | None = None
    speculative: bool = True
    defects: tuple[str, ...] = ()
    mismatch: str = ""
    unadvisable: str = ""
    unmeasured: str = ""
    uptime: Uptime = Uptime()

    def with_recorded_positions(self) -> Case:
        """Return the case with the positions of request records, if its server does not count positions.

        The records must be of the present K, and of the same traffic by their mean acceptance length. They
        are another sample at each poll, so the advice is chosen anew as in a window that is not full.
        """
        measures, shape = self.measures, self.shape
        if measures is None or measures.position_acceptance_ratio or shape is None or self.unadvisable:
            return self
        lengths, known = acceptance_lengths(shape.survival), measures.mean_acceptance_length
        if not lengths or len(lengths) != self.k or known is None or abs(lengths[-1] / known - 1) > ALIKE:
            return self
        recorded = replace(
            measures,
            drafts=min(measures.drafts or 0.0, shape.drafts),
            position_acceptance_ratio=shape.survival,
            mean_acceptance_length_at=lengths,
        )
        return replace(self, measures=recorded, settled=False)
