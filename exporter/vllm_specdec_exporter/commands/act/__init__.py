"""`act`: a receiver of Alertmanager's webhook that runs a program for each decision
alert.

The webhook is protected by a bearer token; health and metrics are not.
"""

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import select
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from aiohttp import web
from msgspec import Struct, field
from prometheus_client import CollectorRegistry, Counter, disable_created_metrics
from prometheus_client.aiohttp import make_aiohttp_handler

from ...config.files import TokenError, is_authorized, read_token
from ...config.listen_address import format_address, parse_listen_address
from ...config.options import ConfigError
from ...config.values import duration, format_duration
from ...listener.connection_limits import ConnectionLimiter
from ...listener.sockets import Listener, error_text
from ...publish.terminal import printable
from ...runtime import logs
from ...runtime.daemon_threads import SharedThreads
from ...runtime.shutdown import on_each_signal
from ..arguments import add_flag, whole_between
from ..exit_codes import FINE, PROBLEM, USAGE
from . import history
from .decision import AlertAction, Decision, EventKind, decide
from .history import FORGET_AFTER, ActionHistory
from .runner import Runner, RunnerSettings

#: Bytes of a payload: aiohttp's own limit, some kilobytes for each of its alerts.
MAX_PAYLOAD_BYTES = 1024 * 1024
#: Seconds that a client may take to send it: Alertmanager gives up after some seconds.
_READ_TIMEOUT = 30.0


class WebhookReceiver(Struct):
    """The endpoints. Alerts need the token; health and metrics do not."""

    #: Queues the decisions of one payload, all or none, and returns whether it did.
    offer: Callable[[tuple[Decision, ...]], bool]
    token_file: str | None  # read at each request; ``None`` to accept every client
    threads: SharedThreads = field(default_factory=SharedThreads)
    last_warning: str = ""  # it is not repeated: clients could fill the log

    def create_app(self, registry: CollectorRegistry) -> web.Application:
        """Return the application, with the metrics of a registry."""
        app = web.Application(client_max_size=MAX_PAYLOAD_BYTES)
        app.router.add_post("/", self._receive)
        app.router.add_post("/alerts", self._receive)
        app.router.add_get("/-/healthy", _probe)
        app.router.add_get("/-/ready", _probe)
        app.router.add_get("/metrics", make_aiohttp_handler(registry))
        return app

    async def _receive(self, request: web.Request) -> web.Response:
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        try:
            async with asyncio.timeout(_READ_TIMEOUT):
                body = await request.read()
            decisions = decide(body)
        except (TimeoutError, ConnectionError, web.RequestPayloadError):
            return _answer(400, "the payload did not come whole, or not in time")
        except ValueError as error:
            return _answer(400, str(error))
        if not self.offer(decisions):
            # Alertmanager retries after a 5xx response.
            why = "too many alerts are waiting already, or act is stopping"
            return _answer(503, why)
        return _answer(200, f"{len(decisions)} accepted")

    async def _refusal(self, request: web.Request) -> web.Response | None:
        """Return the response to a request whose body must not be read, if so."""
        headers = request.headers
        if "Origin" in headers:  # a web page must not reach a loopback listener
            return _answer(403, "browsers are not served")
        if self.token_file is not None:
            try:
                token = await self.threads.read(read_token, self.token_file)
            except (TokenError, TimeoutError) as error:
                warning = f"--web.token-file {error}; no alerts are taken"
                if warning != self.last_warning:
                    _say(warning)
                self.last_warning = warning
                return _answer(503, "the token file cannot be used")
            if not is_authorized(headers.get("Authorization", ""), token):
                why = "the bearer token of --web.token-file is needed"
                return _answer(401, why, {"WWW-Authenticate": _CHALLENGE})
        compressed = "Content-Encoding" in headers
        if compressed or request.content_type != "application/json":
            return _answer(415, "the payload is application/json, not compressed")
        return None


async def _probe(request: web.Request) -> web.Response:
    return _answer(200, request.path.removeprefix("/-/"))


def _answer(
    status: int, line: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(status=status, text=f"{line}\n", headers=headers)


EVENTS = "vllm_specdec_act_events_total"
#: The values of the label `action`: `none` for an alert without one, `unknown` for one
#: with any other.
_ACTIONS = (*AlertAction, "none", "unknown")

#: Listen addresses that only this machine can reach.
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PROGRAM = "vllm-specdec-exporter act"
_CHALLENGE = f'Bearer realm="{_PROGRAM}"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `act` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} stopped by SIGTERM or Ctrl-C; {PROBLEM} it cannot listen; "
        f"{USAGE} bad usage."
    )
    add = partial(add_flag, parser.add_argument_group("what to do"))
    add(
        "--execute",
        "Run the program of --script. Default: dry-run, which only logs what it would "
        "run.",
    )
    add(
        "--script PATH",
        "Program to run, without a shell: PATH ACTION MODEL_NAME RECOMMENDED_K "
        "NAMESPACE CLUSTER, with the alert as JSON on standard input.",
        parse=_executable,
    )
    add(
        "--script.timeout DURATION",
        "Time that the program may take before it is killed.",
        "60s",
        duration(0.1, 3600.0),
    )

    add = partial(
        add_flag, parser.add_argument_group("how often, and what is remembered")
    )
    add(
        "--limit.per-model DURATION",
        "Least time between two actions on one model.",
        format_duration(RunnerSettings().per_model),
        duration(0.0, FORGET_AFTER),
    )
    add(
        "--limit.per-hour N",
        "Most actions in an hour, over all models.",
        f"{RunnerSettings().per_hour}",
        whole_between(1, 1000),
    )
    add(
        "--state.file FILE",
        "File that remembers across restarts what was done; a dry run only reads it. "
        "Default: none.",
        parse=Path,
    )

    add = partial(add_flag, parser.add_argument_group("who may send alerts"))
    add(
        "--web.listen-address ADDRESS",
        "Address to listen on.",
        "127.0.0.1:9851",
        parse_listen_address,
    )
    add(
        "--web.token-file FILE",
        "File with the bearer token that Alertmanager sends; read for every payload.",
        parse=_token_file,
    )
    add(
        "--web.insecure",
        "Take alerts from anybody who can reach an address other than loopback.",
    )


def run(args: argparse.Namespace) -> int:
    """Receive alerts until SIGTERM or SIGINT; return the exit code."""
    settings = _settings(args)
    _check_senders(args)
    past = ActionHistory()
    if settings.state_file is not None:
        _lock(settings.state_file)
        past = history.load(settings.state_file)
    logs.set_up("logfmt", "warning")  # the logs of libraries
    return asyncio.run(_serve(args, settings, past))


def _executable(text: str) -> str:
    path = Path(text).absolute()  # PATH is not searched
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise ValueError("is not an executable file")
    return str(path)


def _token_file(path: str) -> str:
    read_token(path)  # a file that cannot be used is an error at the start
    return path


def _settings(args: argparse.Namespace) -> RunnerSettings:
    if args.execute and args.script is None:
        raise ConfigError("--execute: needs --script to say what is done")
    return RunnerSettings(
        execute=args.execute,
        script=args.script or "",
        timeout=args.script_timeout,
        per_model=args.limit_per_model,
        per_hour=args.limit_per_hour,
        state_file=args.state_file,
    )


def _check_senders(args: argparse.Namespace) -> None:
    """Raise ConfigError if others could send alerts without a token."""
    host, port = args.web_listen_address
    secured = args.web_token_file is not None
    if secured and args.web_insecure:
        raise ConfigError("--web.insecure and --web.token-file: give one of them")
    if not (secured or args.web_insecure or host.lower() in _LOOPBACK):
        raise ConfigError(
            f'--web.listen-address "{format_address(host, port)}": others can reach '
            "it: give --web.token-file, or a loopback address, or --web.insecure"
        )


def _lock(file: Path) -> None:
    """Lock the lock file of a state file until the process ends, or raise ConfigError.

    Two processes with one state file would overwrite each other's state, and both would
    act.
    """
    lock = file.with_name(f"{file.name}.lock")
    try:
        # Neither followed nor emptied if somebody made it a link to another file.
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(
            f'--state.file "{file}": another process of act uses it'
        ) from error
    except OSError as error:
        why = f"{lock.name} cannot be made beside it: {error.strerror}"
        raise ConfigError(f'--state.file "{file}": {why}') from error


async def _serve(
    args: argparse.Namespace, settings: RunnerSettings, past: ActionHistory
) -> int:
    stop = asyncio.Event()
    with on_each_signal(stop.set):
        registry = CollectorRegistry()
        events = _event_counter(registry)
        runner = Runner(settings, past, lambda event: _log(event, events), _say)
        try:
            listener = await Listener.open(*args.web_listen_address)
        except OSError as error:
            address = format_address(*args.web_listen_address)
            why = f"cannot listen: {error_text(error)}"
            _say(f'error: --web.listen-address "{address}": {why}')
            return PROBLEM
        limiter = ConnectionLimiter()
        receiver = WebhookReceiver(runner.offer, args.web_token_file)
        server = await limiter.set_up(receiver.create_app(registry))
        listener.serve(limiter.accept)
        mode = "dry-run: nothing is executed"
        if settings.execute:
            mode = "commands are executed"
        _say(f"listening on http://{listener.addresses[0]} ({mode})")
        working = asyncio.ensure_future(runner.run())
        working.add_done_callback(lambda _: stop.set())  # with a defect
        await stop.wait()
        _say("stopping")
        listener.close()
        await server.cleanup()
        await runner.stop(working)
    with contextlib.suppress(asyncio.CancelledError):
        working.result()  # raises if it ended with a defect
    return FINE


def _event_counter(registry: CollectorRegistry) -> Counter:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    events = Counter(
        EVENTS, "Alerts, by result and action.", ("event", "action"), registry=registry
    )
    # every series exists from the start: `increase` includes the first event
    for kind in EventKind:
        for action in _ACTIONS:
            events.labels(kind, action)
    return events


def _log(event: Mapping[str, object], events: Counter) -> None:
    """Count an event, and write it; if standard output cannot be written, to standard
    error.
    """
    action = event["action"] or "none"
    if action not in _ACTIONS:
        action = "unknown"
    events.labels(event["event"], action).inc()
    line = json.dumps(event)
    unwritten = f"{line}\n".encode()
    try:
        # Not with `print`: where nobody reads, its lock would hold up the end.
        while unwritten:
            unwritten = unwritten[os.write(sys.stdout.fileno(), unwritten) :]
    except OSError as error:
        why = f"cannot be written: {error.strerror}"
        _say(f"standard output: {why}; the event was {line}")


def _say(text: str) -> None:
    line = f"{_PROGRAM}: {printable(text)}\n".encode(errors="backslashreplace")
    with contextlib.suppress(OSError):
        descriptor = sys.stderr.fileno()
        for start in range(0, len(line), select.PIPE_BUF):
            # A pipe that nobody reads would block the process, and so its end. One that
            # can be written takes so many bytes.
            if select.select([], [descriptor], [], 0)[1]:
                os.write(descriptor, line[start : start + select.PIPE_BUF])
