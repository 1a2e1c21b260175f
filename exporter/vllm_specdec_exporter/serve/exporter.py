"""The exporter: the pollers of all targets, the current configuration, and the latest
result.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from .. import __version__
from ..config.options import ConfigError
from ..listener.web_config import WebConfigFileError
from ..observe.result import ExporterResult, Reload, thresholds_by_model
from ..publish.events import aggregate
from ..publish.last_hour import LastHour
from ..runtime import logs
from ..runtime.daemon_threads import SharedThreads
from ..runtime.memory_limit import memory_limit
from ..settings.configuration import ServeConfig, doubts
from ..upstream.client import Upstream
from ..upstream.discovery import Discovery
from ..upstream.read_budget import ReadBudget
from .kept_memory import KeptMemory
from .poll_turns import PollTurns, polled_together
from .poller import Poller
from .request_intake import RequestIntake
from .served_models import ServedModels
from .shared_run import SharedRun

T = TypeVar("T")
#: Least time between two reloads, in seconds; requests within it share the next one.
RELOAD_SECONDS = 1.0
#: Deadline to read the files of a configuration, in seconds: YAML of 4 MiB takes half.
READ_SECONDS = 30.0
GRACE = 1.0  # a result is stale after interval, timeout and this time, in seconds


class Exporter:
    """Polls every target of the configuration, and reloads the configuration on
    request.

    `load` reads and checks the configuration, or raises ConfigError. `clock` is
    monotonic time, `wall` Unix time, in seconds.
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
        self.requests = RequestIntake(
            self.config, clock, lambda: [poller.latest for poller in self._pollers]
        )
        self._threads = SharedThreads()
        self._discovery = Discovery(clock)
        self._served = ServedModels()
        self._read_budget = ReadBudget()
        self._turns = PollTurns(clock)
        self._memory = KeptMemory(memory_limit())
        self._pollers = self._make_pollers(self.config)
        self._polling: dict[Poller, asyncio.Task[None]] = {}
        self._discovering: asyncio.Task[None] | None = None
        self._logging: asyncio.Task[None] | None = None
        self._epoch: float | None = None
        self._reload = Reload(successful=True, success_timestamp_seconds=wall())
        self._web_config_read = self._reload
        self._stopped = False
        self._reloading = asyncio.Lock()
        # Any client may request a reload, which reads files and starts a thread.
        self._reloads = SharedRun(self._reload_now, RELOAD_SECONDS, clock)

    def latest(self) -> ExporterResult:
        """Return the current result without waiting for a poll; `explained` adds the
        reasons and findings.
        """
        time_now = self._clock()
        targets = tuple(poller.result(time_now) for poller in self._pollers)
        thresholds = dict(self.config.settings.thresholds.items())
        return ExporterResult(
            version=__version__,
            timestamp_seconds=self._wall(),
            targets=targets,
            requests=self.requests.result(targets),
            thresholds=thresholds,
            model_thresholds=thresholds_by_model(targets, thresholds),
            reload=self._reload_result(),
            discoveries=self._discovery.results(),
        )

    def explained(self) -> Callable[[], ExporterResult]:
        """Return a function that returns the result of now with all reasons and
        findings, in any thread: of many servers that takes long.
        """
        latest = self.latest()
        explained = [
            poller.explained(target)
            for poller, target in zip(self._pollers, latest.targets, strict=True)
        ]
        return lambda: replace(latest, targets=tuple(make() for make in explained))

    def _reload_result(self) -> Reload:
        """Return how the last readings of both configuration files ended."""
        readings = (self._reload, self._web_config_read)
        return Reload(
            successful=all(reading.successful for reading in readings),
            success_timestamp_seconds=max(
                reading.success_timestamp_seconds for reading in readings
            ),
        )

    def last_hours(self) -> tuple[LastHour, ...]:
        """Return the last hour of each target."""
        return tuple(poller.last_hour for poller in self._pollers)

    def note_web_config(self, reading: Reload) -> None:
        """Record the last read of the web configuration file."""
        self._web_config_read = reading

    def healthy(self) -> bool:
        """Return whether every poll loop and discovery runs, whatever the state of the
        servers.
        """
        if self._epoch is None or self._stopped:
            return True
        tasks = [self._polling.get(poller) for poller in self._pollers]
        if self._discovering is not None:
            tasks.append(self._discovering)
        return all(task is not None and not task.done() for task in tasks)

    def start(self) -> None:
        """Start polling, with the targets spread over the interval, and logging
        aggregates.
        """
        time_now = self._clock()
        if self._epoch is None:
            self._epoch = time_now
        interval = self.config.poll_interval
        together = polled_together(len(self._pollers), interval)
        for index, poller in enumerate(self._pollers):
            if poller in self._polling:
                continue  # kept by a reload
            first = index - index % together
            # Relative to a fixed time: otherwise reloads would move the polls together.
            phase = self._epoch + first * interval / len(self._pollers)
            passed = max(0, math.ceil((time_now - phase) / interval))
            self._polling[poller] = asyncio.create_task(
                poller.run(phase + passed * interval), name=f"poll {poller.name}"
            )
        has_names = self._discovery.use(self.config.upstream.targets)
        if has_names and self._discovering is None:
            self._discovering = asyncio.create_task(self._discover(), name="discovery")
        if self.config.log_interval > 0 and self._logging is None:
            self._logging = asyncio.create_task(self._log(), name="aggregate log")

    async def stop(self) -> None:
        """Stop for good, after a reload that is under way."""
        self._stopped = True
        self._reloads.cancel()
        async with self._reloading:
            self._stop_discovery()
            self._stop_logging()
            await self._stop_pollers(self._pollers)

    def _stop_discovery(self) -> None:
        if self._discovering is not None:
            self._discovering.cancel()
            self._discovering = None

    def _stop_logging(self) -> None:
        if self._logging is not None:
            self._logging.cancel()
            self._logging = None

    async def _stop_pollers(self, pollers: Sequence[Poller]) -> None:
        tasks = []
        for poller in pollers:
            task = self._polling.pop(poller, None)
            if task is not None:
                task.cancel()
                tasks.append(task)
        await asyncio.gather(*tasks, return_exceptions=True)
        for poller in pollers:
            await poller.close()

    async def _discover(self) -> None:
        """Resolve names, and poll the servers found instead of those that are gone."""
        while True:
            try:
                await self._discovery.resolve()
                async with self._reloading:
                    await self._poll_discovered()
            except Exception:  # noqa: BLE001 - a bug or a missing certificate must not end the loop
                logs.LOGGER.exception("discovery failed unexpectedly")
            await asyncio.sleep(self.config.poll_interval)

    async def _poll_discovered(self) -> None:
        servers = self._discovery.servers(self.config.upstream.targets)
        names = [server.name for server in servers]
        if names == [poller.name for poller in self._pollers]:
            return
        # In a thread, because a poller reads the certificates of its server.
        pollers = await self._read(partial(self._make_pollers, self.config))
        self._pollers = await self._replace_pollers(pollers)
        self.start()

    async def reload(self, log: Callable[..., None] = logs.log) -> None:
        """Read and apply the configuration, or raise ConfigError; the state of targets
        that remain is kept.

        After a ConfigError the configuration is the one before. The files are read
        after this call, and not more often than every `RELOAD_SECONDS`. The result is
        written with `log`.
        """
        await self._reloads.request(log)

    @property
    def reloads_waiting(self) -> int:
        """The number of callers that wait for a reload."""
        return self._reloads.waiting

    async def _reload_now(self, log: Callable[..., None]) -> None:
        if self._stopped:
            return
        async with self._reloading:
            try:
                config, pollers = await self._read(self._load_pollers)
            except ConfigError as error:
                web_file = self.config.web_config_file
                if isinstance(error, WebConfigFileError) and error.path == web_file:
                    # Its middleware reports when it is valid again.
                    self._web_config_read = replace(
                        self._web_config_read, successful=False
                    )
                else:
                    self._reload = replace(self._reload, successful=False)
                log(logging.ERROR, "configuration not reloaded", error=str(error))
                raise
            await self._apply(config, pollers)
        log(logging.INFO, "configuration reloaded")

    async def _read(self, function: Callable[[], T]) -> T:
        """Return the result of a function that reads files of the configuration, or
        raise ConfigError.
        """
        # A file that hangs would otherwise take one more thread with every reload.
        if self._threads.are_busy:
            raise ConfigError("the files of the configuration are still being read")
        try:
            return await self._threads.read(function, seconds=READ_SECONDS)
        except TimeoutError as error:
            raise ConfigError(f"the configuration {error}") from error

    def _load_pollers(self) -> tuple[ServeConfig, list[Poller]]:
        config = self._load()
        config.require_file_of(self.config)
        return config, self._make_pollers(config)

    async def _replace_pollers(self, pollers: list[Poller]) -> list[Poller]:
        """Stop the pollers that are not among these, and return these; what exists of a
        target is kept.
        """
        previous = {poller.name: poller for poller in self._pollers}
        # A poller that sends the same requests is kept, with the poll that is under
        # way.
        pollers = [_kept(previous.get(poller.name), poller) for poller in pollers]
        removed = [poller for poller in self._pollers if poller not in pollers]
        await self._stop_pollers(removed)
        for poller in pollers:
            predecessor = previous.get(poller.name)
            if predecessor is not None and predecessor in removed:
                poller.adopt(predecessor)
        names = {poller.name for poller in pollers}
        for poller in removed:
            if poller.name not in names:
                poller.forget()
        return pollers

    async def _apply(self, config: ServeConfig, pollers: list[Poller]) -> None:
        try:
            pollers = await self._replace_pollers(pollers)
        finally:
            old = self.config
            self.config = config
            self._pollers = pollers
            self._stop_discovery()  # started again, with the new names and interval
            if config.log_interval != old.log_interval:
                self._stop_logging()
            self.requests.use(config)
            self._reload = Reload(
                successful=True, success_timestamp_seconds=self._wall()
            )
            logs.set_up(config.log_format, config.log_level)
            if not self._stopped:
                self.start()
        if _needs_restart(config) != _needs_restart(old):
            logs.log(
                logging.WARNING,
                "web.*, tap.* and push.* settings take effect after a restart",
            )
        if doubts(config) != doubts(old):
            log_doubts(config)

    def _make_pollers(self, config: ServeConfig) -> list[Poller]:
        for target in config.upstream.targets:
            if target.discovery:
                # checks the certificates, if no server is known yet
                Upstream(target, config.upstream)
        return [
            Poller(
                target.name,
                Upstream(target, config.upstream, self._read_budget),
                config.settings,
                config.poll_interval,
                patience=config.poll_interval + config.upstream.timeout + GRACE,
                clock=self._clock,
                wall=self._wall,
                turns=self._turns,
                memory=self._memory,
                shapes=self.requests.shapes,
                served=self._served,
            )
            for target in self._discovery.servers(config.upstream.targets)
        ]

    async def _log(self) -> None:
        while True:
            await asyncio.sleep(self.config.log_interval)
            for event in aggregate(self.latest()):
                logs.write((event,))
                await asyncio.sleep(0)  # a thousand lines must not block other tasks


def log_doubts(config: ServeConfig) -> None:
    """Log what a configuration may not mean as it is written."""
    for doubt in doubts(config):
        logs.log(logging.WARNING, "configuration does not fit", finding=doubt)


def _kept(existing: Poller | None, new: Poller) -> Poller:
    """Return the existing poller with the new settings, or the new one if its requests
    differ.
    """
    if existing is None or existing.identity != new.identity:
        return new
    existing.settings = new.settings
    return existing


def _needs_restart(config: ServeConfig) -> tuple[object, ...]:
    return (
        config.listen,
        config.web_config_file,
        config.process_metrics,
        config.tap,
        config.push_token_file,
    )
