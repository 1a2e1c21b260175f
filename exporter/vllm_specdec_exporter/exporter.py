"""The exporter: the pollers of all targets, the configuration in force, and the latest result of it all."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from . import __version__, logs
from .events import Event, aggregate
from .options import ConfigError
from .poller import Poller
from .result import ExporterResult, Reload
from .upstream import Upstream
from .web_options import WebConfigFileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .config import Config

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
        load: Callable[[], Config],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._load = load
        self._clock = clock
        self._wall = wall
        self.config = load()
        self._pollers = self._make_pollers(self.config)
        self._reload = Reload(successful=True, success_timestamp_seconds=wall())
        self._web_config_read = self._reload
        self._tasks: list[asyncio.Task[None]] = []
        self._reloading = asyncio.Lock()

    def latest(self) -> ExporterResult:
        """Return what is known now. It never waits."""
        now = self._clock()
        return ExporterResult(
            version=__version__,
            timestamp_seconds=self._wall(),
            targets=tuple(poller.result(now) for poller in self._pollers),
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
        return not any(task.done() for task in self._tasks)

    def start(self) -> None:
        """Begin to poll, the targets spread over the interval, and to log aggregates."""
        share = self.config.poll_interval / len(self._pollers)
        self._tasks = [
            asyncio.create_task(poller.run(delay=index * share), name=f"poll {poller.name}")
            for index, poller in enumerate(self._pollers)
        ]
        if self.config.log_interval > 0:
            self._tasks.append(asyncio.create_task(self._log(), name="aggregate log"))

    async def stop(self) -> None:
        """Stop for good: a reload that is under way ends first."""
        async with self._reloading:
            await self._halt()

    async def _halt(self) -> None:
        """Stop polling and close what is open."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for poller in self._pollers:
            await poller.close()

    async def reload(self) -> None:
        """Read the configuration anew and go on with it; what is known of a target that stays is kept.

        Raises:
            ConfigError: the new configuration cannot be used; the old one stays in force.
        """
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
            await self._halt()
            self._go_on(config, pollers)
        logs.write([Event(logging.INFO, "configuration reloaded")])

    def _go_on(self, config: Config, pollers: list[Poller]) -> None:
        known = {poller.name: poller for poller in self._pollers}
        for poller in pollers:
            if poller.name in known:
                poller.adopt(known[poller.name])
        before, self.config, self._pollers = self.config, config, pollers
        self._reload = Reload(successful=True, success_timestamp_seconds=self._wall())
        logs.set_up(config.log_format, config.log_level)
        if _needs_restart(config) != _needs_restart(before):
            logs.write([Event(logging.WARNING, "web.* settings take effect after a restart")])
        self.start()

    def _make_pollers(self, config: Config) -> list[Poller]:
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
                )
                for target in config.upstream.targets
            ]
        except ValueError as error:
            raise ConfigError(str(error)) from error

    async def _log(self) -> None:
        while True:
            await asyncio.sleep(self.config.log_interval)
            logs.write(aggregate(self.latest()))


def _needs_restart(config: Config) -> tuple[object, ...]:
    return config.listen, config.web_config_file, config.process_metrics
