"""Settings: what the pipeline needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .economics.profiles import BUILTIN
from .speculation import Speculation
from .thresholds import Thresholds
from .window import Window

if TYPE_CHECKING:
    from .baseline.document import Baseline
    from .economics.cost import CostProfile

DEFAULT_WINDOWS = (Window(30.0), Window(300.0))


@dataclass(frozen=True, slots=True)
class Settings:
    """What the pipeline needs to know.

    Attributes:
        windows: the windows to publish, from the shortest to the longest.
        judged: the one of them that judgement looks at.
        slack: seconds by which a window's oldest sample may be too old: half a poll interval.
        thresholds: the numbers that judge.
        speculation: what the operator says of the server.
        profile: what steps cost.
        size_ratio: size of the draft model over the target's, where the operator says so.
        memory_ratio: memory of the draft model over that of the GPUs, where the operator says so.
        baseline: how fast the server is without speculation, where that was recorded.
        latencies: whether to read what requests took; a baseline needs it.
    """

    windows: tuple[Window, ...] = DEFAULT_WINDOWS
    judged: Window = DEFAULT_WINDOWS[-1]
    slack: float = 2.5
    thresholds: Thresholds = Thresholds()
    speculation: Speculation = Speculation()
    profile: CostProfile = BUILTIN["unknown"]
    size_ratio: float | None = None
    memory_ratio: float | None = None
    baseline: Baseline | None = None
    latencies: bool = False
