"""Settings of the pipeline."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..config.thresholds import Thresholds
from ..economics.profiles import CostSettings
from ..economics.speculative_config import Speculation
from ..measures.history import Window

if TYPE_CHECKING:
    from ..economics.baseline import Baseline

#: The shortest shows a change after some polls; the other holds enough drafts for a
#: verdict at low traffic.
DEFAULT_WINDOWS = (Window(30.0), Window(300.0))


class Settings(Struct, frozen=True):
    """Settings of the pipeline."""

    #: The windows to publish, from the shortest to the longest.
    windows: tuple[Window, ...] = DEFAULT_WINDOWS
    judged: Window = DEFAULT_WINDOWS[-1]  # the window that is judged
    #: Seconds by which the oldest sample may lie before the window: half a poll
    #: interval.
    slack: float = 2.5
    thresholds: Thresholds = Thresholds()
    #: The server's ``--speculative-config``, if given.
    speculation: Speculation = Speculation()
    costs: CostSettings = CostSettings()
    #: Memory of the draft model over that of the GPUs, if given.
    memory_ratio: float | None = None
    baseline: Baseline | None = None  # the recorded speed without speculation, if given
    latencies: bool = False  # whether to read latency histograms; a baseline needs them
    server_info: bool = False  # whether to read SGLang's /server_info
    #: The settings of a served model or a target with a ``--speculative-config`` of its
    #: own.
    by_name: Mapping[str, Settings] = {}
    #: The same without ``--speculative-config``, where there is one for all.
    unspecified: Settings | None = None
    #: The models between which one ``--speculative-config`` cannot choose.
    ambiguous: tuple[str, ...] = ()

    def named(self, name: str) -> Settings:
        """Return the settings of a target or a served model."""
        return self.by_name.get(name, self)

    def of_model(self, name: str, models: Collection[str]) -> Settings:
        """Return the settings of a served model, which is one of `models`.

        One ``--speculative-config`` for several is of none of them: which one it is of
        cannot be known, and its method alone turns the advice around.
        """
        own = self.named(name)
        if own.unspecified is None or len(models) < 2:
            return own
        return replace(own.unspecified, ambiguous=tuple(sorted(models)))

    @property
    def shortest(self) -> Window:
        """The shortest window, which shows first what changed."""
        return self.windows[0]

    @property
    def kept_seconds(self) -> float:
        """How long samples are kept: as far back as the longest window needs."""
        return self.windows[-1].seconds + self.slack
