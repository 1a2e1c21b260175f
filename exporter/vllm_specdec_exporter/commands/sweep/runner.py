"""The runner of a sweep: check that the server is quiet, then measure all cells, with a
line for each.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ...config.values import format_duration
from ...upstream.client import PollError, Upstream
from ..arguments import write_file
from . import client as timing
from . import record as recordfile
from .cell import cell_result, send
from .client import (
    Client,
    Endpoint,
    Unreachable,
    between,
    check_requests,
    identify_server,
    restarted,
)
from .grid import Cell, SweepPlan
from .record import CellResult, ServerIdentity, Status, SweepRecord, settings_of

#: Why a sweep stopped that was interrupted.
INTERRUPTED = "interrupted"


class OtherTraffic(Exception):  # noqa: N818 - it names the fault
    """The server has other traffic. The message is one line with what was observed."""


class _Stopped(Exception):  # noqa: N818 - it names the event
    """The sweep ends before its last cell. The message is the reason."""


class SweepOutcome(Struct, frozen=True):
    """The end of a sweep."""

    record: SweepRecord  # all results
    stopped: str = ""  # why it ended early; empty if it did not

    @property
    def clean(self) -> bool:
        """Whether every cell was measured without disturbance."""
        return not self.stopped and all(
            cell.status is Status.OK for cell in self.record.cells
        )


async def run_sweep(
    plan: SweepPlan,
    endpoint: Endpoint,
    *,
    directory: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> SweepOutcome:
    """Measure every cell of `plan`; each updates `sweep.json` in `directory`, if that
    is given. Cancelled while it measures, it returns what is measured.

    `say` gets lines on the progress.

    Raises:
        Unreachable: the server cannot be measured.
        OtherTraffic: there is other traffic, and the plan does not allow it.
        ConfigError: the plan does not fit the server, or the directory has a sweep
            already.
    """
    async with AsyncExitStack() as stack:
        upstream = Upstream(endpoint.target, endpoint.metrics)
        stack.push_async_callback(upstream.close)
        session = await stack.enter_async_context(endpoint.open())
        server = await identify_server(endpoint.target.name, upstream, plan.model)
        sweep = _Sweep(
            # The API needs the name in each request, also of an only model.
            plan=replace(plan, model=server.model),
            server=server,
            client=Client(endpoint, session, plan.request_timeout),
            metrics=upstream,
            directory=directory,
            say=say,
        )
        await sweep.check()
        if directory is not None:
            recordfile.prepare(directory)
        return await sweep.run()


class _Sweep(Struct, frozen=True):
    """A sweep of a server."""

    plan: SweepPlan
    server: ServerIdentity
    client: Client
    metrics: Upstream
    directory: Path | None
    say: Callable[[str], None]

    async def check(self) -> None:
        """Check that the server is quiet and accepts the requests."""
        name = self.server.target
        watch = self.plan.watch
        allowed = self.plan.allow_other_traffic
        try:
            sample, traffic = await timing.rest(self.metrics, quiet=watch, limit=watch)
        except PollError as error:
            raise Unreachable(f"{name} cannot be measured: {error}") from error
        if traffic and not allowed:
            raise OtherTraffic(
                f"others use {name}: {traffic}; --allow-other-traffic measures all "
                "the same"
            )
        if traffic:
            self.say(f"others use the server: {traffic}")
        # Only a note: engines may publish the counters with their first draft.
        if not any(engine.shows_speculation for engine in sample.reading.engines):
            self.say(
                "the server's metrics show no speculation yet; there may be no "
                "acceptance"
            )
        await check_requests(self.client, self.plan)

    async def run(self) -> SweepOutcome:
        """Measure all cells."""
        cells = self.plan.cells()
        requests = self.plan.warm_up()
        record = SweepRecord(self.server, settings_of(self.plan))
        # before the first cell, so that a directory without write access ends it early
        self._keep(record)
        self.say(f"{len(cells)} cells")
        self.say(f"warming up with {len(requests)} short requests")
        # Each cell is kept at once: an interruption loses no more than one.
        try:
            await send(self.client, requests, max(self.plan.concurrencies))
            started = time.monotonic()
            for cell in cells:
                result = await self._measure(cell)
                record = replace(record, cells=(*record.cells, result))
                self._keep(record)
                seconds = time.monotonic() - started
                self.say(progress_line(record.cells, len(cells), seconds))
                disturbed = result.status is Status.DISTURBED
                if disturbed and not self.plan.allow_other_traffic:
                    reasons = "; ".join(result.reasons)
                    raise _Stopped(f"other traffic disturbed {cell.name}: {reasons}")
        except _Stopped as stop:
            return SweepOutcome(record, str(stop))
        except asyncio.CancelledError:
            return SweepOutcome(record, INTERRUPTED)
        return SweepOutcome(record)

    def _keep(self, record: SweepRecord) -> None:
        if self.directory is not None:
            file = self.directory / recordfile.FILE
            write_file("--out", file, recordfile.encode(record))

    async def _measure(self, cell: Cell) -> CellResult:
        plan = self.plan
        started = time.time()
        limit = timing.MAX_BUSY_REST if plan.allow_other_traffic else timing.MAX_REST
        try:
            first, traffic = await timing.rest(
                self.metrics, quiet=timing.QUIET, limit=limit
            )
            if traffic and not plan.allow_other_traffic:
                raise _Stopped(f"others use the server: {traffic} before {cell.name}")
            requests = plan.requests_of(cell)
            answers, seconds = await send(
                self.client, requests, cell.concurrency, waves=plan.waves
            )
            tokens = sum(answer.completion_tokens for answer in answers)
            last, traffic = await timing.rest(
                self.metrics, first, tokens, quiet=timing.QUIET, limit=limit
            )
        except PollError as error:
            why = f"the server's counters cannot be read any more: {error}"
            raise _Stopped(why) from error
        if restarted(first, last):
            raise _Stopped(f"the server restarted within {cell.name}")
        return cell_result(
            cell,
            answers,
            between(first, last),
            seconds=seconds,
            rested=not traffic,
            max_tokens=plan.max_tokens,
            started=started,
        )


def progress_line(results: Sequence[CellResult], total: int, seconds: float) -> str:
    """Return the last of the results that took some seconds, and about how long the
    others of a `total` will take.
    """
    number = len(results)
    line = f"[{number}/{total}] {results[-1].name}: {in_short(results[-1])}"
    if number < total:
        left = seconds / number * (total - number)
        line += f"; about {format_duration(round(left))} left"
    return line


def in_short(result: CellResult) -> str:
    """Return a short result of a cell."""
    reasons = "; ".join(result.reasons)
    if result.status is Status.FAILED:
        return f"failed: {reasons}"
    text = "no drafts"
    if result.acceptance_ratio is not None:
        text = f"acceptance {result.acceptance_ratio:.2f}"
    if result.tokens_per_second is not None:
        text += f", {result.tokens_per_second:.1f} tokens/s"
    if result.status is Status.DISTURBED:
        return f"{text}; disturbed: {reasons}"
    if reasons:
        return f"{text}; {reasons}"
    return text
