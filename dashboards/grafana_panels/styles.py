"""Units, ranges and words that panels share."""

from __future__ import annotations

from .field import Json

#: Shown where nothing is drafted, or nothing known.
NOTHING = "no drafts, or no exporter"
TIMES: Json = {"unit": "suffix:×", "decimals": 2}
RATIO: Json = {"unit": "percentunit", "decimals": 0, "least": 0, "most": 1}
LENGTH: Json = {"unit": "short", "decimals": 2}
#: Events per minute by kind, stacked; a single one does not fill the panel.
A_MINUTE: Json = {"unit": "suffix:/min", "decimals": 1, "least": 0, "soft_most": 1, "stack": True, "fill": 25}
