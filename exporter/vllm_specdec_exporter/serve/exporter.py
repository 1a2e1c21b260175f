"""The exporter: the pollers of all targets, the configuration in force, and the latest result of it all."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import __version__
from ..config.options import ConfigError
from ..observe.result import ExporterResult, Reload
from ..publish.events import Event, aggregate
from . import logs
from .configuration import WebConfigFileError
from .poller import Poller
from .request_intake import RequestIntake
from .upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .configuration import ServeConfig

#: Least time from one reload to the next, in seconds. Whoever asks meanwhile gets the next one together.
RELOAD_SECONDS = 1.0

#: How long beyond interval and timeout a poll may be overdue before its result counts as stale, in seconds.
GRACE = 1.0


class Exporter:
    """Polls every target of the configuration, and reads the configuration anew on request.

    Args:
        load: reads and checks the configuration; raises `ConfigError`.
        clock: a clock that never goes back, in seconds.
        wall: Unix time in seconds.

    Raises:
        ConfigError: the configuration cannot be used.
    """

    def __init__(
        self,
        load: Callable[[], ServeConfig],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._load = load
        self._clock = clock
        self._wall = wall
        self.config = load()
        self.requests = RequestIntake(self.config, clock)
        self._pollers = self._make_pollers(self.config)
        self._polling: dict[Poller, asyncio.Task[None]] = {}
        self._logging: asyncio.Task[None] | None = None
        self._epoch: float | None = None
        self._reload = Reload(successful=True, success_timestamp_seconds=wall())
        self._web_config_read = self._reload
        self._stopped = False
        self._waiting = 0
        self._reloading = asyncio.Lock()
        self._reloaded_at: float | None = None
        self._next_reload: asyncio.Task[None] | None = None

    def latest(self) -> ExporterResult:
        """Return what is known now. It never waits."""
        now = self._clock()
        targets = tuple(poller.result(now) for poller in self._pollers)
        return ExporterResult(
            version=__version__,
            timestamp_seconds=self._wall(),
            targets=targets,
            requests=self.requests.result(targets),
            thresholds=dict(self.config.settings.thresholds.items()),
            reload=self._last_reload(),
        )

    def note_web_config(self, reading: Reload) -> None:
        """Take down how the last reading of the web configuration file ended."""
        self._web_config_read = reading

    def _last_reload(self) -> Reload:
        """The configuration is the newest if both its files are."""
        both = (self._reload, self._web_config_read)
        return Reload(
            successful=all(part.successful for part in both),
            success_timestamp_seconds=max(part.success_timestamp_seconds for part in both),
        )

    def healthy(self) -> bool:
        """Tell whether every poll loop is alive, whatever the servers do."""
        if self._epoch is None or self._stopped:
            return True
        tasks = [self._polling.get(poller) for poller in self._pollers]
        return not any(task is None or task.done() for task in tasks)

    def start(self) -> None:
        """Begin to poll, the targets spread over the interval, and to log aggregates."""
        now = self._clock()
        if self._epoch is None:
            self._epoch = now
        interval = self.config.poll_interval
        for index, poller in enumerate(self._pollers):
            if poller in self._polling:
                continue  # it was kept, with its beat
            # Beats have an anchor: otherwise reloads would let them run together.
            phase = self._epoch + index * interval / len(self._pollers)
            beat = phase + max(0, math.ceil((now - phase) / interval)) * interval
            self._polling[poller] = asyncio.create_task(poller.run(beat), name=f"poll {poller.name}")
        if self.config.log_interval > 0 and self._logging is None:
            self._logging = asyncio.create_task(self._log(), name="aggregate log")

    async def stop(self) -> None:
        """Stop for good: a reload that is under way ends first."""
        self._stopped = True
        if self._next_reload is not None:
            self._next_reload.cancel()
        async with self._reloading:
            self._log_no_more()
            await self._halt(self._pollers)

    def _log_no_more(self) -> None:
        if self._logging is not None:
            self._logging.cancel()
            self._logging = None

    async def _halt(self, pollers: Sequence[Poller]) -> None:
        """Stop polling with these, and close what they have open."""
        ending = [self._polling.pop(poller) for poller in pollers if poller in self._polling]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for poller in pollers:
            await poller.close()

    async def reload(self) -> None:
        """Read the configuration anew and go on with it; what is known of a target that stays is kept.

        It is read after this was called, and not more often than every `RELOAD_SECONDS`.

        Raises:
            ConfigError: the new configuration cannot be used; the old one stays in force.
        """
        if self._next_reload is None:
            self._next_reload = asyncio.create_task(self._reload_soon(), name="reload")
            self._next_reload.add_done_callback(_retrieve)
        self._waiting += 1
        try:
            await asyncio.shield(self._next_reload)  # whoever gives up does so for himself
        finally:
            self._waiting -= 1

    @property
    def reloads_waiting(self) -> int:
        """How many wait for a reload."""
        return self._waiting

    async def _reload_soon(self) -> None:
        if self._reloaded_at is not None:
            await asyncio.sleep(self._reloaded_at + RELOAD_SECONDS - self._clock())
        # Who asks from here on may have changed what is being read.
        self._next_reload, self._reloaded_at = None, self._clock()
        await self._reload_now()

    async def _reload_now(self) -> None:
        if self._stopped:
            return
        async with self._reloading:
            try:
                config = self._load()
                pollers = self._make_pollers(config)
            except ConfigError as error:
                # Whoever follows the web configuration file tells when it is mended; nobody tells of others.
                if isinstance(error, WebConfigFileError) and error.path == self.config.web_config_file:
                    self._web_config_read = replace(self._web_config_read, successful=False)
                else:
                    self._reload = replace(self._reload, successful=False)
                logs.write([Event(logging.ERROR, "configuration not reloaded", {"error": str(error)})])
                raise
            await self._go_on(config, pollers)
        logs.write([Event(logging.INFO, "configuration reloaded")])

    async def _go_on(self, config: ServeConfig, pollers: list[Poller]) -> None:
        known = {poller.name: poller for poller in self._pollers}
        # Who asks the same server in the same way goes on, also with the poll that is under way.
        pollers = [_kept(known.get(poller.name), poller) for poller in pollers]
        gone = [poller for poller in self._pollers if poller not in pollers]
        try:
            await self._halt(gone)
            for poller in pollers:
                if (before := known.get(poller.name)) in gone and before is not None:
                    poller.adopt(before)
        finally:
            old, self.config, self._pollers = self.config, config, pollers
            if config.log_interval != old.log_interval:
                self._log_no_more()
            self.requests.use(config)
            self._reload = Reload(successful=True, success_timestamp_seconds=self._wall())
            logs.set_up(config.log_format, config.log_level)
            if not self._stopped:
                self.start()
        if _needs_restart(config) != _needs_restart(old):
            logs.write(
                [Event(logging.WARNING, "web.*, tap.* and push.* settings take effect after a restart")]
            )

    def _make_pollers(self, config: ServeConfig) -> list[Poller]:
        try:
            return [
                Poller(
                    target.name,
                    Upstream(target, config.upstream),
                    config.settings,
                    config.poll_interval,
                    patience=config.poll_interval + config.upstream.timeout + GRACE,
                    clock=self._clock,
                    wall=self._wall,
                    shapes=self.requests.shapes,
                )
                for target in config.upstream.targets
            ]
        except ValueError as error:
            raise ConfigError(str(error)) from error

    async def _log(self) -> None:
        while True:
            await asyncio.sleep(self.config.log_interval)
            logs.write(aggregate(self.latest()))


def _kept(before: Poller | None, new: Poller) -> Poller:
    """Return the poller from before with the new settings where it asks the same in the same way."""
    if before is None or before.asks != new.asks:
        return new
    before.settings = new.settings
    return before


def _retrieve(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # perhaps nobody waits any more: it was logged


def _needs_restart(config: ServeConfig) -> tuple[object, ...]:
    web = (config.listen, config.web_config_file, config.max_requests, config.process_metrics)
    return *web, config.tap, config.push_token_file
