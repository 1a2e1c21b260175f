"""`baseline`: record the speed of a server without speculation, with one recorder per
engine.
"""

import argparse
import asyncio
import contextlib
import math
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from ...config.options import ConfigError, add_flags
from ...config.values import format_duration
from ...economics.baseline import FORMAT, Baseline, BaselineError, encode
from ...economics.speculative_config import WITHOUT_MODEL, drafts_without_model
from ...economics.statistics import reach_of
from ...engines import ENGINE_OF
from ...engines.reading import EngineKey, EngineReading, Reading
from ...engines.tables import servers_with_latencies
from ...measures.history import Sample
from ...publish.wording import printable, shown
from ...settings import configuration as config
from ...upstream.client import PollError, Upstream
from .. import arguments as cli
from .recorder import Recorder


class Watcher:
    """Records the engines of one model of a server, without the `settle` seconds after
    a draft.
    """

    def __init__(
        self,
        upstream: Upstream,
        model_name: str,
        settle: float,
        clock: Callable[[], float],
        method: str = "",
    ) -> None:
        self._upstream = upstream
        self._settle = settle
        self._clock = clock
        self._recorders: dict[EngineKey, Recorder] = {}
        self._model_name = model_name
        self._method = method
        self._version = ""
        self._dialect = ""
        self.missed = 0  # failed polls
        # whether the newest sample was left out because of drafts
        self.drafting = False

    async def begin(self, earlier: Baseline | None = None) -> None:
        """Take the first sample; `earlier` is a baseline to extend.

        PollError if the server cannot be reached or parsed, BaselineError if there is
        nothing to record.
        """
        reading = await self._upstream.read(latencies=True)
        models = sorted({engine.key.model_name for engine in reading.engines})
        if not self._model_name and len(models) > 1:
            names = ", ".join(models)
            raise BaselineError(
                f"the server has several models, choose one with --model: {names}"
            )
        if self._model_name and self._model_name not in models:
            raise BaselineError(
                f"no model {self._model_name!r}; the server has {', '.join(models)}"
            )
        self._model_name = self._model_name or models[0]
        for engine in self._engines(reading):
            if (
                engine.latencies is None
                or engine.latencies.time_per_output_token is None
            ):
                raise BaselineError(
                    "the server has no time per output token: a baseline needs "
                    f"{servers_with_latencies()}, without --disable-log-stats"
                )
        self._dialect = reading.dialect
        self._version = await self._upstream.version()
        if earlier is not None and (
            reason := earlier.why_not(self._model_name, self._version)
        ):
            raise BaselineError(reason)
        self._observe(reading)

    async def watch(
        self, seconds: float, interval: float, tell: Callable[[float, float], None]
    ) -> None:
        """Take samples for some seconds; `tell` gets the elapsed seconds and the
        recorded requests.
        """
        started = self._clock()
        beat = started
        while (passed := self._clock() - started) < seconds:
            beat = max(beat + interval, self._clock())
            await asyncio.sleep(min(beat - self._clock(), seconds - passed))
            try:
                self._observe(await self._upstream.read(latencies=True))
            except PollError:
                self.missed += 1
                for recorder in self._recorders.values():
                    recorder.interrupt()
            tell(
                self._clock() - started,
                sum(recorder.requests for recorder in self._recorders.values()),
            )

    def baseline(self, earlier: Baseline | None = None) -> Baseline:
        """Return the recording, added to the earlier baseline if there is one, or raise
        BaselineError.
        """
        together = Recorder()
        problem: BaselineError | None = None
        for recorder in self._recorders.values():
            try:
                together.include(recorder.buckets())
            except BaselineError as error:
                problem = error
        if not together.requests and problem is not None:
            raise problem
        if earlier is not None:
            together.include(earlier.buckets)
        return Baseline(
            format=FORMAT,
            model_name=self._model_name,
            upstream_version=self._version,
            dialect=self._dialect,
            recorded_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            buckets=together.buckets(),
        )

    def _engines(self, reading: Reading) -> list[EngineReading]:
        return [
            engine
            for engine in reading.engines
            if engine.key.model_name == self._model_name
        ]

    def _observe(self, reading: Reading) -> None:
        now = self._clock()
        for engine in self._engines(reading):
            method = self._method or (engine.drafting.method if engine.drafting else "")
            if engine.shows_speculation and not drafts_without_model(method):
                raise BaselineError(
                    _NO_PLAIN_STEPS.format(
                        ENGINE_OF[reading.dialect].speculation_option
                    )
                )
            recorder = self._recorders.setdefault(engine.key, Recorder(self._settle))
            sample = Sample(
                now,
                engine.counters,
                engine.load.requests_running,
                latencies=engine.latencies,
            )
            before = recorder.speculating_seconds
            recorder.observe(sample)
            self.drafting = recorder.speculating_seconds > before


_LOOKUPS = ", ".join(sorted(WITHOUT_MODEL))
_NO_PLAIN_STEPS = (
    "the server speculates, and with a draft model even steps without drafts (K=0 of "
    "a schedule) cost a pass "
    f"of it: record a server without {{}}, or give --method if it is one of {_LOOKUPS}"
)

FINE, NOTHING, USAGE, _, UNREACHABLE = range(5)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `baseline` to `parser`."""
    parser.epilog = (
        "The server must not speculate, or do so without a draft model and only at "
        "times (a K schedule with "
        "rows of 0, and --method). It is not sent anything: its usual traffic is "
        "what counts. Exit codes: "
        f"{FINE} recorded; {NOTHING} nothing could be recorded; {USAGE} bad usage; "
        f"{UNREACHABLE} the server "
        "cannot be reached or understood."
    )
    cli.add_url(parser, "Server without speculation.")
    cli.add_flag(parser, "--out FILE", "File to write.", "baseline.json")
    how_long = "How long to record; Ctrl-C ends it earlier and keeps what there is."
    cli.add_flag(parser, "--for DURATION", how_long, "10m", dest="duration")
    cli.add_flag(parser, "--interval DURATION", "Time between two samples.", "1s")
    cli.add_flag(
        parser,
        "--settle DURATION",
        "Time behind a server's last draft that is left out.",
        "30s",
    )
    cli.add_flag(
        parser, "--model NAME", "Model to record, where there are several.", ""
    )
    method = f"Speculative method of a server that speculates at times: {_LOOKUPS}."
    cli.add_flag(
        parser, "--method NAME", method, "", choices=("", *sorted(WITHOUT_MODEL))
    )
    cli.add_flag(
        parser,
        "--append",
        "Add to the file: more load levels, or more requests for each.",
    )
    add_flags(parser, cli.CONNECTION_OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Record the baseline and return the exit code."""
    values = cli.values_of_one_server(args, cli.SERVER_OPTIONS, "baseline records")
    seconds = cli.seconds_of("--for", args.duration, 1.0)
    interval = cli.seconds_of("--interval", args.interval, 0.1)
    settle = cli.seconds_of("--settle", args.settle, 0.0)
    if interval >= seconds:
        raise ConfigError(
            f"--interval {args.interval}: must be less than --for {args.duration}"
        )
    upstream_config = config.build_upstream(
        values, values["poll.timeout"] or max(4.0, interval)
    )
    out = Path(args.out)
    if args.append and out.exists():
        earlier = config.load_baseline(str(out), "--append")
    else:
        earlier = None
    cli.check_writable("--out", out)
    target = upstream_config.targets[0]
    upstream = Upstream(target, upstream_config)
    watcher = Watcher(upstream, args.model, settle, time.monotonic, args.method)
    try:
        asyncio.run(_record(watcher, upstream, seconds, interval, earlier))
        baseline = watcher.baseline(earlier)
    except PollError as error:
        if error.reason == "refused":
            hint = " (a server that loads its model refuses for minutes)"
        else:
            hint = ""
        return cli.fail(
            "baseline", f"{target.name}: {error.reason}: {error}{hint}", UNREACHABLE
        )
    except BaselineError as error:
        return cli.fail("baseline", f"{target.name}: {error}", NOTHING)
    cli.write_file("--out", out, encode(baseline))
    print(_table(baseline, out, watcher.missed))
    return FINE


async def _record(
    watcher: Watcher,
    upstream: Upstream,
    seconds: float,
    interval: float,
    earlier: Baseline | None,
) -> None:
    try:
        await watcher.begin(earlier)
        task = asyncio.ensure_future(
            watcher.watch(seconds, interval, _progress(seconds, watcher))
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        await upstream.close()
        cli.show_progress("")


def _progress(seconds: float, watcher: Watcher) -> Callable[[float, float], None]:
    whole = format_duration(seconds)
    warned = False

    def tell(passed: float, requests: float) -> None:
        nonlocal warned
        if watcher.drafting and not warned:
            warned = True
            print(
                "the server drafts: nothing is recorded until it stops", file=sys.stderr
            )
        done = format_duration(float(round(passed)))
        cli.show_progress(
            f"\rrecording: {done} of {whole}, {requests:,.0f} requests ", end=""
        )

    return tell


def _table(baseline: Baseline, out: Path, missed: int) -> str:
    lines = [
        (
            f"{printable(baseline.model_name) or 'the only model'} without "
            "speculation, by running requests:"
        ),
        "",
        (
            "  running  requests  tokens/s   ms per output token: mean, ±, P50, P99   "
            "ms to the first"
        ),
    ]
    for bucket in baseline.buckets:
        tpot = bucket.latencies.time_per_output_token
        ttft = bucket.latencies.time_to_first_token
        if tpot:
            whole = (tpot.mean, tpot.quantile(0.5), tpot.quantile(0.99))
        else:
            whole = (None, None, None)
        times = (*whole, ttft.mean if ttft else None)
        mean, *quantiles, first = (
            f"{shown(time and 1000 * time, '{:,.2f}'):>9}" for time in times
        )
        within = f"{math.expm1(reach_of(bucket.uncertainty)):>6.0%}"
        cells = " ".join((mean, within, *quantiles)) + " " * 7
        lines.append(
            f"  {bucket.requests_running:>7.1f}  {bucket.requests:>8,.0f}  "
            f"{bucket.generation_tokens_per_second:>8,.0f}   {cells}{first}"
        )
    lines += [
        "",
        (
            "  (±: 95 % interval of the mean; quantiles are as coarse as the server's "
            "buckets)"
        ),
    ]
    lines += [
        "",
        f"written to {out}; give it to the exporter with --baseline.file {out}",
    ]
    if missed:
        lines.append(f"{missed} samples could not be had")
    return "\n".join(lines)
