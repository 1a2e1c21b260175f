"""Cases of the alert rules: a world, a minute, and exactly what fires then.

A case module is `cases_<group>.py` and has `CASES`; `test_rules.py` runs them all and finds what is untested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .promtool import Check

if TYPE_CHECKING:
    from collections.abc import Callable

    from .promtool import Expected
    from .world import World

PREFIX = "VLLMSpecDecode"


@dataclass(frozen=True)
class Case:
    """One statement about one alert.

    Attributes:
        name: what is stated, in kebab-case; unique among all cases.
        alert: the alert's name without the prefix.
        kind: whether it fires; is silent; is silent again after it has fired, which `earlier` shows; or still
            fires although its cause is gone.
        world: builds what Prometheus has scraped.
        minute: when `expected` is all that fires under this name.
        expected: alerts with their exact labels and annotations; none is silence.
        earlier: further checks in the same run; their alert names may lack the prefix, too.
        topic: of a silent case, what it is about: "healthy", "idle", "low-traffic", "warming-up", "restart",
            "missing-series", "one-of-many", "beneficial", "too-short" or "other".
    """

    name: str
    alert: str
    kind: Literal["fires", "silent", "recovers", "holds"]
    world: Callable[[], World]
    minute: int
    expected: tuple[Expected, ...] = ()
    earlier: tuple[Check, ...] = ()
    topic: str = ""

    def checks(self) -> tuple[Check, ...]:
        """Return all of its checks, with full alert names."""
        found = (*self.earlier, Check(self.minute, self.alert, self.expected))
        return tuple(Check(one.minute, full_name(one.alert), one.expected) for one in found)


def full_name(alert: str) -> str:
    """Return an alert's name with the prefix."""
    return alert if alert.startswith(PREFIX) else PREFIX + alert
