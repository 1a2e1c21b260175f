"""What `act` says of itself: events by kind and action."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ... import __version__
from ...config.addresses import format_address
from ...config.options import ConfigError
from ...publish.wording import printable
from ...serve import logs
from ...serve.connection_limits import ConnectionLimiter
from ...serve.listener import Listener, why_not
from ...serve.shutdown import on_each_signal
from ...serve.web_options import MOST_REQUESTS
from .arguments import add_flags_of_act, read_config
from .decision import Action, EventKind
from .runner import Runner
from .server import Receiver, create_app

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from prometheus_client.core import Metric

    from .arguments import Config
    from .decision import ActEvent


EVENTS = "vllm_specdec_act_events_total"
BUILD = "vllm_specdec_act_build_info"

#: What the label `action` can be: `none` for an alert without one, `unknown` for one with any other.
ACTIONS = (*Action, "none", "unknown")


class Tally(Collector):
    """Counts events. Every series is there from the start, so that the first increase can be seen."""

    def __init__(self) -> None:
        self._counts = Counter({(str(kind), str(action)): 0 for kind in EventKind for action in ACTIONS})

    def count(self, event: ActEvent) -> None:
        """Count an event."""
        self._counts[str(event.kind), event.action] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        events = CounterMetricFamily(
            EVENTS,
            "Alerts by what became of them and by the action they ask for.",
            labels=("event", "action"),
        )
        for labels, value in self._counts.items():
            events.add_metric(labels, value)
        yield events
        build = GaugeMetricFamily(BUILD, "1, with the version that runs.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build


_PROGRAM = "vllm-specdec-exporter act"

# Exit codes.
FINE, PROBLEM, USAGE = range(3)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the flags of `act`."""
    parser.epilog = (
        f"Exit codes: {FINE} stopped by SIGTERM or Ctrl-C; {PROBLEM} it cannot listen; {USAGE} bad usage."
    )
    add_flags_of_act(parser)


def run(args: argparse.Namespace) -> int:
    """Receive alerts until SIGTERM or SIGINT; return the exit code."""
    config = read_config(args)
    logs.set_up("logfmt", "warning")  # what libraries say
    with contextlib.ExitStack() as held:
        if config.settings.state_file is not None:
            held.enter_context(_alone_with(config.settings.state_file))
        return asyncio.run(_serve(config))


@contextlib.contextmanager
def _alone_with(file: Path) -> Iterator[None]:
    """Hold a lock beside a state file: two processes would each forget what the other did.

    Raises:
        ConfigError: another process holds it, or it cannot be made.
    """
    lock = file.with_name(f"{file.name}.lock")
    try:
        stream = lock.open("w", encoding="ascii")
    except OSError as error:
        raise ConfigError(
            f'--state.file "{file}": {lock.name} cannot be made beside it: {error.strerror}'
        ) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f'--state.file "{file}": another process of act uses it') from error
        yield


async def _serve(config: Config) -> int:
    stop = asyncio.Event()
    with on_each_signal(stop.set):
        return await _receive(config, stop)


async def _receive(config: Config, stop: asyncio.Event) -> int:
    loop = asyncio.get_running_loop()
    tally = Tally()

    def tell(event: ActEvent) -> None:
        loop.call_soon_threadsafe(tally.count, event)
        _log(event.line(time.time()), config.log_file)

    runner = Runner(
        config.settings, config.state, tell=tell, complain=_say, clock=time.time, variables=os.environ
    )
    receiver = Receiver(runner.offer, config.token, tally, _once())
    listener = await _listen(*config.listen)
    if listener is None:
        return PROBLEM
    admission = ConnectionLimiter(MOST_REQUESTS)
    # Alertmanager does not compress.
    server = await admission.set_up(create_app(receiver), auto_decompress=False)
    listener.serve(admission)
    mode = "commands are executed" if config.settings.execute else "dry-run: nothing is executed"
    _say(f"listening on http://{listener.addresses[0]} ({mode})")
    working = asyncio.ensure_future(runner.run())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
    _say("stopping")
    stopped.cancel()
    listener.close()
    await server.cleanup()
    await runner.stop()
    await working
    return FINE


async def _listen(host: str, port: int) -> Listener | None:
    try:
        return await Listener.open(host, port)
    except (OSError, UnicodeError) as error:
        _say(f'error: --web.listen-address "{format_address(host, port)}": cannot listen: {why_not(error)}')
        return None


def _log(line: str, file: Path | None) -> None:
    """Write an event; a log that cannot be written does not stop what it is about."""
    try:
        if file is None:
            print(line, flush=True)
            return
        with file.open("a", encoding="ascii") as stream:  # anew each time: logs are rotated
            stream.write(f"{line}\n")
    except OSError as error:
        place = "standard output" if file is None else f"--log.file {file}"
        _say(f"{place}: cannot be written: {error.strerror}; the event was {line}")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"{_PROGRAM}: {printable(text)}", file=sys.stderr, flush=True)


def _once() -> Callable[[str], None]:
    """Return what says a line unless it is the one that it said last: anyone could fill the log with it."""
    last = ""

    def say(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            _say(text)

    return say
