"""The runner of a sweep: check that the server is quiet, then measure all cells."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...config.options import ConfigError
from ...config.values import format_duration
from ...serve.upstream import Upstream
from . import record as recordfile
from .cell import judge, send
from .client import Client, Sampling
from .counters import BUSY_LIMIT, REST_LIMIT, CounterReader, CountersError, restarted
from .endpoint import Unreachable, identify, settle_api
from .progress import SweepProgress
from .record import CellResult, Status, SweepRecord, setup_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .endpoint import Endpoint
    from .grid import Cell, SweepPlan
    from .record import ServerIdentity, Setup

#: Longest wait for a server that disappears within a cell, in seconds.
RECOVERY = 300.0
_WARM_UP_TOKENS = 8
_ATTEMPTS = 2


class OtherTraffic(Exception):  # noqa: N818 - it names the fault
    """The server has other traffic. The message is one line with what was observed."""


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """The end of a sweep."""

    record: SweepRecord  # all results
    left: int  # number of cells without a valid result
    stopped: str = ""  # why it ended early; empty if it did not

    @property
    def clean(self) -> bool:
        """Whether every cell was measured without disturbance."""
        return not self.stopped and not self.left and all(c.status is Status.OK for c in self.record.cells)


async def run_sweep(
    plan: SweepPlan,
    endpoint: Endpoint,
    *,
    directory: Path | None = None,
    progress: SweepProgress | None = None,
    begun: Callable[[SweepRecord], None] = lambda _: None,
) -> SweepOutcome:
    """Measure every cell of `plan` that is not in `directory` yet, whose `sweep.json` each cell updates.

    `progress` receives events, `begun` the record at the start and after each cell.

    Raises:
        Unreachable: the server cannot be measured.
        OtherTraffic: there is other traffic, and the plan does not allow it.
        ConfigError: the plan does not fit the server, or the directory has another sweep.
    """
    async with AsyncExitStack() as stack:
        try:
            upstream = Upstream(endpoint.target, endpoint.metrics)
            socket, headers = endpoint.target.socket, endpoint.authorization()
            client = Client(endpoint.base, socket, endpoint.upstream, headers, plan.request_timeout)
            stack.push_async_callback(upstream.close)
            await stack.enter_async_context(client)
        except ValueError as error:  # certificates
            raise ConfigError(str(error)) from error
        name, counters, shown = endpoint.target.name, CounterReader(upstream), progress or SweepProgress()
        return await _Sweep(plan, name, client, upstream, counters, directory, shown, begun).run()


@dataclass(slots=True)
class _Sweep:
    """A running sweep."""

    plan: SweepPlan
    name: str
    client: Client
    upstream: Upstream
    counters: CounterReader
    directory: Path | None
    progress: SweepProgress
    begun: Callable[[SweepRecord], None]
    record: SweepRecord | None = None
    server: ServerIdentity | None = None

    async def run(self) -> SweepOutcome:
        """Measure within the time limit."""
        stopped = ""
        try:
            async with asyncio.timeout(self.plan.max_duration) as limit:
                stopped = await self._run()
        except TimeoutError:
            if not limit.expired():
                raise
            stopped = f"the time of --max-duration {format_duration(self.plan.max_duration)} is over"
        finally:
            self.progress.end()
        if self.record is None:
            raise Unreachable(f"{self.name}: {stopped} before the first cell")
        return SweepOutcome(self.record, len(self._open_cells(self.record)), stopped)

    async def _run(self) -> str:
        """Measure the pending cells; return why it stopped early, or an empty text."""
        plan = self.plan
        self.server = await self._identify()
        old = None if self.directory is None else recordfile.load(self.directory)
        self._check_same(old, setup_of(plan, old.setup.api if old and plan.api == "auto" else plan.api))
        if old is None or self._open_cells(old):
            await self._make_sure_of_quiet()
            setup = setup_of(plan, await self._settle_api())
            self._check_same(old, setup)
            # Written before the first cell, so that a directory without write access is detected early.
            self._keep(old or SweepRecord(self.server, setup))
        else:
            self.record = old
        pending = self._open_cells(self._known)
        self.progress.begin(len(plan.cells()), len(plan.cells()) - len(pending))
        if pending:
            await self._warm_up()
        for number, cell in enumerate(pending):
            if number:
                await asyncio.sleep(plan.pause)
            try:
                result = await self._measure(cell)
            except CountersError as error:
                return f"the server's counters cannot be read any more: {error}"
            except (Unreachable, OtherTraffic) as error:
                return str(error)
            self._keep(self._known.with_cell(result))
            self.progress.finished(result)
            if result.status is Status.DISTURBED and not plan.allow_other_traffic:
                return f"other traffic disturbed {cell.name}: {'; '.join(result.reasons)}"
        return ""

    async def _identify(self) -> ServerIdentity:
        return await identify(self.name, self.client, self.counters, self.upstream, self.plan.model)

    def _check_same(self, old: SweepRecord | None, setup: Setup) -> None:
        if old is not None and self.directory is not None and self.server is not None:
            recordfile.check_same(self.directory, old, self.server, setup)

    async def _make_sure_of_quiet(self) -> None:
        try:
            observation, seen = await self.counters.watch(self.plan.watch)
        except CountersError as error:
            raise Unreachable(f"{self.name} cannot be reached: {error}") from error
        if seen and not self.plan.allow_other_traffic:
            raise OtherTraffic(f"others use {self.name}: {seen}; --allow-other-traffic measures all the same")
        if seen:
            self.progress.say(f"others use the server: {seen}")
        if not any(engine.shows_speculation for engine in observation.reading.engines):
            none = "the server's metrics show no speculation yet: there may be no acceptance to measure"
            self.progress.say(none)

    async def _settle_api(self) -> str:
        plan = self.plan
        sampling = replace(self._sampling(plan.api, 0.0), max_tokens=1)
        api, why = await settle_api(self.client, sampling, plan.prompts[0].prompts[0])
        if why:
            self.progress.say(f"using the completions API, because the server does not chat: {why}")
        return api

    async def _warm_up(self) -> None:
        plan = self.plan
        sampling = replace(self._sampling(self._known.setup.api, 0.0), max_tokens=_WARM_UP_TOKENS)
        asked = [(0, prompt) for prompt in plan.warm_up()]
        self.progress.say(f"warming up with {len(asked)} short requests")
        await send(self.client, sampling, asked, max(plan.concurrencies))

    async def _measure(self, cell: Cell) -> CellResult:
        """Measure one cell, and once more if the server restarts within it."""
        limit = BUSY_LIMIT if self.plan.allow_other_traffic else REST_LIMIT
        for attempt in range(1, _ATTEMPTS + 1):
            started = time.time()
            before, rested = await self.counters.rest(limit=limit)
            if not rested and not self.plan.allow_other_traffic:
                busy = f"{before.running:g} requests running, {before.waiting:g} waiting before {cell.name}"
                raise OtherTraffic(f"others use the server: {busy}")
            self.progress.cell(cell, self.plan.requests)
            answers, seconds = await send(
                self.client,
                self._sampling(self._known.setup.api, cell.temperature),
                self.plan.asked(cell),
                cell.concurrency,
                lambda _: self.progress.answered(),
                waves=self.plan.waves,
            )
            own = sum(answer.completion_tokens for answer in answers)
            try:
                after, rested = await self.counters.rest(before, own, limit)
            except CountersError as error:
                if not error.gone:
                    raise
                await self._wait_for_return(error)
            else:
                if not restarted(before, after):
                    most = self.plan.max_tokens
                    result = judge(
                        cell, answers, seconds, before, after, rested=rested, max_tokens=most, started=started
                    )
                    return replace(result, attempts=attempt)
            await self._check_identity()
            if attempt < _ATTEMPTS:
                self.progress.say(f"the server restarted within {cell.name}; measuring it again")
                await self._warm_up()
        why = f"the server restarted within the cell, {_ATTEMPTS} times"
        return CellResult(
            prompts=cell.prompts,
            concurrency=cell.concurrency,
            temperature=cell.temperature,
            status=Status.FAILED,
            reasons=(why,),
            started=started,
            attempts=_ATTEMPTS,
        )

    async def _wait_for_return(self, error: CountersError) -> None:
        self.progress.say(f"the server does not answer ({error}); waiting for it")
        end = time.monotonic() + RECOVERY
        while time.monotonic() < end:
            await asyncio.sleep(1)
            try:
                await self.counters.read()
                await self.client.models()
            except Exception as again:  # noqa: BLE001 - a loading server fails in every way there is
                error = again if isinstance(again, CountersError) else error
            else:
                return
        limit = format_duration(RECOVERY)
        raise Unreachable(f"{self.name} went away and did not come back within {limit}: {error}")

    async def _check_identity(self) -> None:
        """Check that the server after a restart is the same."""
        try:
            found = recordfile.server_differences(self._known.server, await self._identify())
        except ConfigError as error:  # it does not have the model
            found = [str(error)]
        if found:
            raise Unreachable(f"{self.name} came back as another server: {'; '.join(found)}")

    def _sampling(self, api: str, temperature: float) -> Sampling:
        plan = self.plan
        assert self.server is not None
        return Sampling(
            model=self.server.model,
            api=api,
            temperature=temperature,
            max_tokens=plan.max_tokens,
            seed=plan.seed,
            top_p=plan.top_p,
            ignore_eos=plan.ignore_eos,
        )

    @property
    def _known(self) -> SweepRecord:
        assert self.record is not None
        return self.record

    def _keep(self, record: SweepRecord) -> None:
        self.record = record
        if self.directory is not None:
            recordfile.save(self.directory / recordfile.FILE, recordfile.encode(record))
        self.begun(record)

    def _open_cells(self, record: SweepRecord) -> tuple[Cell, ...]:
        """Return the cells that are not measured, or must be repeated."""
        done = record.finished(allow_other_traffic=self.plan.allow_other_traffic)
        return tuple(cell for cell in self.plan.cells() if cell not in done)
