"""Times as Grafana's Prometheus data source reckons them: the step of a query, and its `$__rate_interval`.

After `calculatePrometheusInterval` and `interpolateVariables` of Grafana's pkg/promlib/models/query.go, and
`calculateInterval` and `roundInterval` of @grafana/data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: What a variable may be set to: one value, or several.
Value = str | tuple[str, ...]
Json = Mapping[str, Any]

#: Points of a series that Grafana never exceeds, whatever the panel wants.
_SAFE_POINTS = 11_000
#: Upper bound of an interval in milliseconds, and what Grafana rounds it to.
_ROUNDED = (
    (10, 1), (15, 10), (35, 20), (75, 50), (150, 100), (350, 200), (750, 500), (1_500, 1_000), (3_500, 2_000),
    (7_500, 5_000), (12_500, 10_000), (17_500, 15_000), (25_000, 20_000), (45_000, 30_000), (90_000, 60_000),
    (210_000, 120_000), (450_000, 300_000), (750_000, 600_000), (1_050_000, 900_000), (1_500_000, 1_200_000),
    (2_700_000, 1_800_000), (5_400_000, 3_600_000), (9_000_000, 7_200_000), (16_200_000, 10_800_000),
    (32_400_000, 21_600_000), (86_400_000, 43_200_000), (604_800_000, 86_400_000),
    (1_814_400_000, 604_800_000), (3_628_800_000, 2_592_000_000),
)  # fmt: skip
_YEAR = 31_536_000_000
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


class DashboardError(ValueError):
    """Grafana could not make a question of this, or would make a wrong one."""


@dataclass(frozen=True)
class Viewing:
    """A person who looks at a dashboard.

    Attributes:
        start: Unix time at which the range begins.
        end: Unix time at which it ends.
        values: of variables; of the others, what the dashboard has as `current`.
        pixels: width of the dashboard.
        scrape_interval: of the data source, in seconds.
    """

    start: float
    end: float
    values: Mapping[str, Value] = field(default_factory=dict)
    pixels: int = 1600
    scrape_interval: float = 15.0


def milliseconds(text: str) -> int:
    """Return a duration as Grafana writes it, such as `15s`, in milliseconds."""
    match = re.fullmatch(r"[<>=]*\s*(\d+)(ms|[smhdw])", text)
    if match is None:
        msg = f"not a duration: {text!r}"
        raise DashboardError(msg)
    return int(match[1]) * _UNITS[match[2]]


def _rounded(interval: float) -> int:
    return next((value for bound, value in _ROUNDED if interval < bound), _YEAR)


def _duration(value: int) -> str:
    """Return milliseconds as PromQL writes a duration."""
    return f"{value // 1000}s" if value % 1000 == 0 else f"{value}ms"


@dataclass(frozen=True)
class Timing:
    """Distances in time of one query, in milliseconds.

    Attributes:
        step: between two points; `$__interval`.
        rate_interval: `$__rate_interval`.
        range: from the start to the end of what is looked at; `$__range`.
    """

    step: int
    rate_interval: int
    range: int

    def values(self) -> dict[str, str]:
        """Return Grafana's own variables."""
        return {
            "__interval": _duration(self.step),
            "__interval_ms": str(self.step),
            "__rate_interval": _duration(self.rate_interval),
            "__rate_interval_ms": str(self.rate_interval),
            "__range": f"{round(self.range / 1000)}s",
            "__range_s": str(round(self.range / 1000)),
            "__range_ms": str(self.range),
        }


def timing(viewing: Viewing, panel: Json, target: Json) -> Timing:
    """Return the distances in time of a target's query; a panel without `gridPos` is as wide as the page."""
    span = round((viewing.end - viewing.start) * 1000)
    points = max(1, int(viewing.pixels * panel.get("gridPos", {}).get("w", 24) / 24))
    scrape = round(viewing.scrape_interval * 1000)
    between = milliseconds(target["interval"]) if target.get("interval") else scrape
    wanted = max(scrape, _rounded(span / points))
    least = between if target.get("interval") else wanted
    step = max(least if span / points < least else _rounded(span / points), _rounded(span / _SAFE_POINTS))
    return Timing(step, max(wanted + between, 4 * between), span)
