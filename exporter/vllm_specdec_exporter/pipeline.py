"""The pipeline: from one answer of a server to the published result of each of its engines.

One straight walk, with nothing but values going through it::

    bytes -> dialects.read -> Reading -> history -> window.look_back -> Delta
          -> measures.derive -> Measures -> judgement.* -> EngineResult

Pure: the state goes in and comes out, and the time comes with the reading. The poller holds the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .assessment import assess
from .history import Sample
from .settings import DEFAULT_WINDOWS, Settings
from .speculation import Speculation
from .state import EngineState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .per_request.positions import DraftShape
    from .reading import EngineKey, Reading
    from .result import EngineResult

__all__ = ["DEFAULT_WINDOWS", "EngineState", "Settings", "Speculation", "interrupt", "observe"]


def observe(
    states: Mapping[EngineKey, EngineState],
    reading: Reading,
    time: float,
    settings: Settings,
    upstream_version: str = "",
    shapes: Mapping[str, DraftShape] | None = None,
) -> tuple[dict[EngineKey, EngineState], tuple[EngineResult, ...]]:
    """Return the states and results of every engine in `reading`, taken at `time` seconds.

    `shapes` tells how long the drafts of each model are, where records of single requests do.
    An engine that the server no longer shows is forgotten, so label values that come and go cost nothing.
    """
    keep = settings.windows[-1].seconds + settings.slack
    after: dict[EngineKey, EngineState] = {}
    results = []
    for engine in reading.engines:
        key, baseline = engine.key, settings.baseline
        mismatch = baseline.why_not(key.model_name, upstream_version) if baseline else ""
        sample = Sample(time, engine.counters, engine.load.requests_running, latencies=engine.latencies)
        state = states.get(key, EngineState()).observe(
            sample, keep, engine.defects, None if mismatch else baseline
        )
        after[key], result = assess(
            engine,
            state,
            time,
            settings,
            reading,
            upstream_version=upstream_version,
            mismatch=mismatch,
            shape=(shapes or {}).get(key.model_name),
        )
        results.append(result)
    return after, tuple(results)


def interrupt(states: Mapping[EngineKey, EngineState]) -> dict[EngineKey, EngineState]:
    """Return the states of a server that was gone: no window will reach across that."""
    return {key: state.interrupt() for key, state in states.items()}
