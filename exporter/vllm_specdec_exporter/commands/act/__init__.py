"""`act`: a receiver of Alertmanager's webhook that runs a command for each decision alert."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hmac
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler
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
from ...serve.web_config import MOST_REQUESTS
from .arguments import TokenError, add_flags_of_act, read_config, read_token
from .decision import AlertAction, Decision, EventKind, PayloadError, decide, decode, evaluate
from .process import Kubernetes, Script
from .runner import Runner

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
    """Hold the lock file of a state file, for one process at a time, or raise ConfigError."""
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
    limiter = ConnectionLimiter(MOST_REQUESTS)
    server = await limiter.set_up(receiver.create_app())
    listener.serve(limiter)
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


# The HTTP server.

#: Maximum size of a payload in bytes.
MAX_PAYLOAD_BYTES = 1024 * 1024
#: Seconds that a client may take to send it.
_READ_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class WebhookReceiver:
    """The endpoints. Alerts need the token; health and metrics do not."""

    #: queues the alerts of one payload, all or none, and returns whether it did
    offer: Callable[[tuple[Alert, ...]], bool]
    token_file: Path | None  #: read at each request; ``None`` to accept every client
    metrics: Collector  #: the metrics of `/metrics`
    on_warning: Callable[[str], None]  #: called with a line about a token file that cannot be used

    def create_app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=MAX_PAYLOAD_BYTES)
        registry = CollectorRegistry()
        registry.register(self.metrics)
        app.router.add_post("/", self._receive)
        app.router.add_post("/alerts", self._receive)
        app.router.add_get("/-/healthy", _lives)
        app.router.add_get("/-/ready", _lives)
        app.router.add_get("/metrics", make_aiohttp_handler(registry))
        return app

    async def _receive(self, request: web.Request) -> web.Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        try:
            async with asyncio.timeout(_READ_TIMEOUT):
                body = await request.read()
            alerts = decode(body)
        except TimeoutError:
            return _answer(408, "the payload did not come in time")
        except web.HTTPRequestEntityTooLarge:
            return _answer(413, f"a payload has at most {MAX_PAYLOAD_BYTES} bytes")
        except (ConnectionError, web.RequestPayloadError):
            return _answer(400, "the payload did not come whole")
        except PayloadError as error:
            return _answer(400, str(error))
        if not self.offer(alerts):
            # Alertmanager retries after a 5xx response.
            return _answer(503, "too many alerts are waiting already, or act is stopping")
        return _answer(200, f"{len(alerts)} taken")

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Return the response to a request whose body is not read; ``None`` if it is."""
        if "Origin" in request.headers:  # a web page must not reach a loopback listener
            return _answer(403, "browsers are not served")
        if self.token_file is not None:
            try:
                accepted = _has_token(request, read_token(self.token_file))
            except TokenError as error:
                self.on_warning(f"--web.token-file {error}; no alerts are taken")
                return _answer(503, "the token file cannot be used")
            if not accepted:
                challenge = {"WWW-Authenticate": 'Bearer realm="vllm-specdec-exporter act"'}
                return _answer(401, "the bearer token of --web.token-file is needed", challenge)
        if request.content_type != "application/json" or "Content-Encoding" in request.headers:
            return _answer(415, "the payload is application/json, not compressed")
        return None


def _has_token(request: web.Request, token: bytes) -> bool:
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    given = credentials.strip().encode("utf-8", "surrogateescape")
    return hmac.compare_digest(given, token) and scheme.lower() == "bearer"


async def _lives(request: web.Request) -> web.Response:
    return web.Response(text=f"{request.path.rpartition('/')[2]}\n")


def _answer(status: int, line: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{line}\n", headers=headers)
