"""The address of the status page, which says how the page is shown.

The page has no scripts but for its reload, and browsers forget what was opened when it
reloads. So reloads, the engine in detail and the opened parts are in the address.
"""

import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

#: The parts that can be folded, by their word in the address.
FOLDS = ("rules", "rubric")
DEFAULT_REFRESH = 5.0
#: Seconds: a page that reloads more seldom than once an hour is as good as paused.
_MAX_REFRESH = 3600.0
_ENGINE = re.compile(r"engine-\d{1,6}-\d{1,6}")


class PageQuery(Struct, frozen=True):
    """How the page is shown."""

    #: Whole seconds between reloads, 0 for never.
    refresh: int = math.ceil(DEFAULT_REFRESH)
    chosen: bool = False  # whether the address says so
    #: Anchor of the engine that is shown in detail, empty for the worst one.
    engine: str = ""
    opened: frozenset[str] = frozenset()  # words of `FOLDS`

    def link(self, anchor: str = "", **changes: Any) -> str:
        """Return the address of the page with `changes`, relative to itself."""
        query = replace(self, **changes)
        parameters = {}
        if query.chosen:
            parameters["refresh"] = str(query.refresh)
        if query.engine:
            parameters["engine"] = query.engine
        if query.opened:
            parameters["open"] = ",".join(filter(query.opened.__contains__, FOLDS))
        address = "."
        if parameters:
            address = f"?{urlencode(parameters, safe=',')}"
        return f"{address}#{anchor}" if anchor else address

    def toggle(self, fold: str) -> str:
        """Return the address with this part opened, or folded if it is open."""
        return self.link(f"open-{fold}", opened=self.opened ^ {fold})


def parse_query(
    query: Mapping[str, str], default_refresh: float = DEFAULT_REFRESH
) -> PageQuery:
    """Return what the parameters `refresh`, `engine` and `open` say.

    What is invalid is ignored.
    """
    try:
        seconds = float(query["refresh"])
    except (KeyError, ValueError):
        seconds = math.nan
    chosen = math.isfinite(seconds)
    if not chosen:
        seconds = default_refresh
    engine = query.get("engine", "")
    if not _ENGINE.fullmatch(engine):
        engine = ""
    return PageQuery(
        # Browsers truncate to whole seconds: a fraction would become 0 and reload
        # without a pause.
        refresh=math.ceil(min(max(seconds, 0.0), _MAX_REFRESH)),
        chosen=chosen,
        engine=engine,
        opened=frozenset(query.get("open", "").split(",")) & frozenset(FOLDS),
    )
