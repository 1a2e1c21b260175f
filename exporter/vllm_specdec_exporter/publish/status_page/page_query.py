"""What the address of the status page says: reloads, the engine in detail, the opened parts.

The page has no scripts, and browsers forget what was opened when it reloads, so that it is in the address.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from ..markup import Html, element

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The parts that are folded: the word in the query and the title.
FOLDS = {
    "rules": "Rules of thumb",
    "rubric": "Rubric, applied",
    "counters": "Counters as the server gave them",
    "errors": "Failed polls by reason",
    "thresholds": "Thresholds in force",
}
DEFAULT_REFRESH = 5.0
_SLOWEST_REFRESH = 3600.0
_ENGINE = re.compile(r"engine-\d{1,6}-\d{1,6}")


@dataclass(frozen=True, slots=True)
class PageQuery:
    """How the page is shown.

    Attributes:
        refresh: whole seconds between reloads, 0 for never.
        chosen: whether the address says so.
        engine: anchor of the engine that is shown in detail, empty for the worst one.
        opened: keys of `FOLDS`.
    """

    refresh: int = math.ceil(DEFAULT_REFRESH)
    chosen: bool = False
    engine: str = ""
    opened: frozenset[str] = frozenset()

    def link(self, anchor: str = "") -> str:
        """Return the address of the page, relative to itself."""
        parts = {
            "refresh": str(self.refresh) if self.chosen else "",
            "engine": self.engine,
            "open": ",".join(key for key in FOLDS if key in self.opened),
        }
        query = urlencode({key: value for key, value in parts.items() if value}, safe=",")
        return (f"?{query}" if query else ".") + (f"#{anchor}" if anchor else "")

    def fold(self, key: str, *content: str, anchor: str = "") -> Html:
        """Return a part with a link that opens or closes it; closed, it is its title alone.

        `anchor` is needed where the page has several parts of this key.
        """
        is_open = key in self.opened
        anchor = anchor or f"open-{key}"
        link = element(
            "a",
            FOLDS[key],
            href=replace(self, opened=self.opened ^ {key}).link(anchor),
            aria_expanded="true" if is_open else "false",
        )
        return element("div", element("p", link, id=anchor), *(content if is_open else ()), class_="fold")


def parse_query(query: Mapping[str, str], default_refresh: float = DEFAULT_REFRESH) -> PageQuery:
    """Return what the parameters `refresh`, `engine` and `open` say.

    Whatever is invalid is ignored, so that the page never fails because of it.
    """
    try:
        seconds = float(query["refresh"])
        chosen = math.isfinite(seconds)
    except (KeyError, ValueError):
        chosen = False
    if not chosen:
        seconds = default_refresh
    # Browsers truncate to whole seconds: a fraction would become 0 and reload without a pause.
    refresh = math.ceil(min(max(seconds, 0.0), _SLOWEST_REFRESH))
    engine = query.get("engine", "")
    return PageQuery(
        refresh=refresh,
        chosen=chosen,
        engine=engine if _ENGINE.fullmatch(engine) else "",
        opened=frozenset(key for key in query.get("open", "").split(",") if key in FOLDS),
    )
