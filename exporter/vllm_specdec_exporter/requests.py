"""Single requests in a running exporter: who tells of them, the book of them, how busy servers are."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from . import logs
from .economics.profiles import deployed
from .events import Event
from .per_request.book import Book
from .per_request.judgement import Load
from .per_request.observation import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .config import Config
    from .per_request.observation import Observation
    from .per_request.positions import DraftShape
    from .per_request.result import RequestsResult
    from .per_request.room import Crowded
    from .result import TargetResult
    from .settings import Settings
    from .tap.tap import Tap


class Requests:
    """What is known of single requests; nothing where neither tap nor push tells of any.

    Args:
        config: the configuration in force.
        clock: a clock that never goes back, in seconds.

    Attributes:
        tap: the tap, once there is one.
    """

    def __init__(self, config: Config, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._settings = config.settings
        told = {Source.TAP: config.tap is not None, Source.PUSH: bool(config.push_token_file)}
        # For good: who tells of requests changes with a restart.
        self._sources = [source for source, tells in told.items() if tells]
        self._classification = config.requests.classification
        self._book = Book(config.requests, config.settings.thresholds, self._sources)
        self._crowded: set[Crowded] = set()  # the log tells of each once
        self.tap: Tap | None = None

    def use(self, config: Config) -> None:
        """Go on with another configuration."""
        book = Book(config.requests, config.settings.thresholds, self._sources)
        book.adopt(self._book)
        self._book, self._settings = book, config.settings
        self._classification = config.requests.classification
        if self.tap is not None:
            self.listen_to(self.tap)

    def listen_to(self, tap: Tap) -> None:
        """Count what passes through the tap."""
        self.tap = tap
        tap.use(self._classification, partial(self.observe, Source.TAP))

    def observe(self, source: Source, observation: Observation) -> None:
        """Count a request that has just ended."""
        for what in self._book.add(observation, source, self._clock()):
            if what not in self._crowded:
                self._crowded.add(what)
                logs.write([Event(logging.WARNING, "no room for more names of requests", {"label": what})])

    def reject(self, count: int) -> None:
        """Count pushed observations that could not be used."""
        self._book.push_rejected_total += count

    def shapes(self) -> Mapping[str, DraftShape]:
        """Return how long the drafts of each model are."""
        return self._book.shapes(self._clock())

    def result(self, targets: Iterable[TargetResult]) -> RequestsResult | None:
        """Return all that is known, beside what is known of the servers."""
        if not self._sources:
            return None
        tap = self.tap.result() if self.tap is not None else None
        return self._book.result(self._clock(), loads_of(targets, self._settings), tap)


def loads_of(targets: Iterable[TargetResult], settings: Settings) -> dict[str, Load]:
    """Return how busy the server of each model is; of several engines the first that says so."""
    loads: dict[str, Load] = {}
    for engine in (engine for target in targets for engine in target.engines):
        measures = engine.window(engine.judged_window)
        if measures is None or measures.estimate.batch_size is None or engine.model_name in loads:
            continue
        profile = deployed(
            settings.profile, settings.size_ratio, settings.speculation.draft_model, engine.model_name
        )
        loads[engine.model_name] = Load(measures.estimate.batch_size, profile)
    return loads
