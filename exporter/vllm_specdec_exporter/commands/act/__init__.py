"""`act`: a receiver of Alertmanager's webhook that runs a command for each decision alert.

* `arguments`: the flags, and their validation at startup.
* `server`: the HTTP side: the webhook, its bearer token, health and metrics.
* `decision`: from a payload to decisions, or why an alert is not acted upon.
* `runner`: the queue of decisions, carried out one at a time within the limits.
* `history`: what was done, for the limits; kept across restarts.
* `process`: from a decision to the command that carries it out, and how it is run.
"""

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
from ...config.options import ConfigError
from ...config.values import format_address
from ...publish.wording import printable
from ...serve import logs
from ...serve.connection_limits import ConnectionLimiter
from ...serve.shutdown import on_each_signal
from ...serve.sockets import Listener, error_text
from .arguments import add_flags_of_act, read_config
from .decision import AlertAction, Decision, EventKind, decide, decode, evaluate
from .process import Kubernetes, Script
from .runner import Runner
from .server import WebhookReceiver

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from prometheus_client.core import Metric

    from .arguments import ActConfig
    from .decision import Alert
    from .runner import ActEvent


__all__ = ["Decision", "Script", "decide", "decode"]

EVENTS = "vllm_specdec_act_events_total"
BUILD = "vllm_specdec_act_build_info"

#: The values of the label `action`: `none` for an alert without one, `unknown` for one with any other.
ACTIONS = (*AlertAction, "none", "unknown")


class EventCounter(Collector):
    """Counts events. Every series exists from the start, so that `increase` includes the first event."""

    def __init__(self) -> None:
        self._counts = Counter({(str(kind), str(action)): 0 for kind in EventKind for action in ACTIONS})

    def count(self, event: ActEvent) -> None:
        """Count an event."""
        self._counts[str(event.kind), event.action] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families."""
        text = "Alerts by what became of them and by the action they ask for."
        events = CounterMetricFamily(EVENTS, text, labels=("event", "action"))
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
    """Add the flags of `act` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} stopped by SIGTERM or Ctrl-C; {PROBLEM} it cannot listen; {USAGE} bad usage."
    )
    add_flags_of_act(parser)


def run(args: argparse.Namespace) -> int:
    """Receive alerts until SIGTERM or SIGINT; return the exit code."""
    config = read_config(args)
    logs.set_up("logfmt", "warning")  # the logs of libraries
    with contextlib.ExitStack() as held:
        if config.settings.state_file is not None:
            held.enter_context(_locked(config.settings.state_file))
        return asyncio.run(_serve(config))


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the lock file of a state file, or raise ConfigError.

    Two processes with one state file would overwrite each other's state, and both would act.
    """
    lock = file.with_name(f"{file.name}.lock")
    try:
        # Neither followed nor emptied if somebody made it a link to another file.
        stream = os.fdopen(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b")
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


async def _serve(config: ActConfig) -> int:
    stop = asyncio.Event()
    with on_each_signal(stop.set):
        return await _serve_until(stop, config)


async def _serve_until(stop: asyncio.Event, config: ActConfig) -> int:
    loop = asyncio.get_running_loop()
    counter = EventCounter()

    def on_event(event: ActEvent) -> None:
        loop.call_soon_threadsafe(counter.count, event)
        _log(event.line(time.time()), config.log_file)

    runner = Runner(config.settings, config.state, on_event, _say)
    executor = config.settings.executor

    def offer(alerts: tuple[Alert, ...]) -> bool:
        if isinstance(executor, Kubernetes):
            return runner.offer(evaluate(alerts, executor.target_of))
        return runner.offer(evaluate(alerts))

    receiver = WebhookReceiver(offer, config.token_file, counter, _say_once())
    listener = await _listen(*config.listen)
    if listener is None:
        return PROBLEM
    limiter = ConnectionLimiter()
    server = await limiter.set_up(receiver.create_app())
    listener.serve(limiter.accept)
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
        _say(
            f'error: --web.listen-address "{format_address(host, port)}": cannot listen: {error_text(error)}'
        )
        return None


def _log(line: str, file: Path | None) -> None:
    """Write an event; if the log cannot be written, to standard error."""
    try:
        if file is None:
            print(line, flush=True)
            return
        with file.open("a", encoding="ascii") as stream:  # opened each time, because logs are rotated
            stream.write(f"{line}\n")
    except OSError as error:
        place = "standard output" if file is None else f"--log.file {file}"
        _say(f"{place}: cannot be written: {error.strerror}; the event was {line}")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"{_PROGRAM}: {printable(text)}", file=sys.stderr, flush=True)


def _say_once() -> Callable[[str], None]:
    """Return a function that prints a line unless it equals the last one: clients could fill the log."""
    last = ""

    def say(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            _say(text)

    return say
