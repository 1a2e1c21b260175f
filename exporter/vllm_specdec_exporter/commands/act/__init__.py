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
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, disable_created_metrics
from prometheus_client.aiohttp import make_aiohttp_handler

from ...config.files import TokenError, is_authorized, read_token
from ...config.options import ConfigError
from ...config.values import format_address, format_duration, parse_listen_address
from ...listener.connection_limits import ConnectionLimiter
from ...listener.sockets import Listener, error_text
from ...publish.wording import printable
from ...runtime import logs
from ...runtime.daemon_threads import SharedThreads
from ...runtime.shutdown import on_each_signal
from ..arguments import add_flag, parsed, seconds_of, whole_between
from . import history
from .decision import AlertAction, Decision, EventKind, decide
from .history import FORGET_AFTER, ActionHistory
from .runner import Runner, RunnerSettings

#: Bytes of a payload: aiohttp's own limit, some kilobytes for each of its alerts.
MAX_PAYLOAD_BYTES = 1024 * 1024
#: Seconds that a client may take to send it: Alertmanager gives up after some seconds.
_READ_TIMEOUT = 30.0


class WebhookReceiver:
    """The endpoints. Alerts need the token; health and metrics do not.

    Args:
        offer: queues the decisions of one payload, all or none, and returns whether it
            did.
        token_file: read at each request; ``None`` to accept every client.
        on_warning: called with a line about a token file that cannot be used.
    """

    def __init__(
        self,
        offer: Callable[[tuple[Decision, ...]], bool],
        token_file: str | None,
        on_warning: Callable[[str], None],
    ) -> None:
        self._offer = offer
        self._token_file = token_file
        self._on_warning = on_warning
        self._threads = SharedThreads()
        self._last_warning = ""  # it is not repeated: clients could fill the log

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
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        try:
            async with asyncio.timeout(_READ_TIMEOUT):
                body = await request.read()
            decisions = decide(body)
        except (TimeoutError, ConnectionError, web.RequestPayloadError):
            return _answer(400, "the payload did not come whole, or not in time")
        except ValueError as error:
            return _answer(400, str(error))
        if not self._offer(decisions):
            # Alertmanager retries after a 5xx response.
            return _answer(
                503, "too many alerts are waiting already, or act is stopping"
            )
        return _answer(200, f"{len(decisions)} accepted")

    async def _refusal(self, request: web.Request) -> web.Response | None:
        """Return the response to a request whose body is not read; ``None`` if it is."""
        if "Origin" in request.headers:  # a web page must not reach a loopback listener
            return _answer(403, "browsers are not served")
        try:
            file = self._token_file
            if file is None:
                token = None
            else:
                token = await self._threads.read(read_token, file)
        except (TokenError, TimeoutError) as error:
            warning = self._last_warning
            self._last_warning = f"--web.token-file {error}; no alerts are taken"
            if warning != self._last_warning:
                self._on_warning(self._last_warning)
            return _answer(503, "the token file cannot be used")
        if token is not None and not is_authorized(
            request.headers.get("Authorization", ""), token
        ):
            response = _answer(401, "the bearer token of --web.token-file is needed")
            response.headers["WWW-Authenticate"] = (
                'Bearer realm="vllm-specdec-exporter act"'
            )
            return response
        if (
            request.content_type != "application/json"
            or "Content-Encoding" in request.headers
        ):
            return _answer(415, "the payload is application/json, not compressed")
        return None


async def _probe(request: web.Request) -> web.Response:
    return _answer(200, request.path.removeprefix("/-/"))


def _answer(status: int, line: str) -> web.Response:
    return web.Response(status=status, text=f"{line}\n")


EVENTS = "vllm_specdec_act_events_total"
#: The values of the label `action`: `none` for an alert without one, `unknown` for one
#: with any other.
_ACTIONS = (*AlertAction, "none", "unknown")

#: Listen addresses that only this machine can reach.
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PROGRAM = "vllm-specdec-exporter act"

# Exit codes.
FINE, PROBLEM, USAGE = range(3)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `act` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} stopped by SIGTERM or Ctrl-C; {PROBLEM} it cannot listen; "
        f"{USAGE} bad usage."
    )
    group = parser.add_argument_group("what to do")
    execute = (
        "Run the program of --script. Default: dry-run, which only logs what it would "
        "run."
    )
    add_flag(group, "--execute", execute)
    add_flag(
        group,
        "--script PATH",
        "Program to run, without a shell: PATH ACTION MODEL_NAME RECOMMENDED_K "
        "NAMESPACE CLUSTER, with the "
        "alert as JSON on standard input.",
    )
    timeout = "Time that the program may take before it is killed."
    add_flag(group, "--script.timeout DURATION", timeout, "60s")

    group = parser.add_argument_group("how often, and what is remembered")
    least = "Least time between two actions on one model."
    add_flag(
        group,
        "--limit.per-model DURATION",
        least,
        format_duration(RunnerSettings().per_model),
    )
    most = "Most actions in an hour, over all models."
    default = f"{RunnerSettings().per_hour}"
    add_flag(group, "--limit.per-hour N", most, default, whole_between(1, 1000))
    state = (
        "File that remembers across restarts what was done; a dry run only reads it. "
        "Default: none."
    )
    add_flag(group, "--state.file FILE", state, parse=Path)

    group = parser.add_argument_group("who may send alerts")
    add_flag(
        group, "--web.listen-address ADDRESS", "Address to listen on.", "127.0.0.1:9851"
    )
    bearer = (
        "File with the bearer token that Alertmanager sends; read for every payload."
    )
    add_flag(group, "--web.token-file FILE", bearer)
    insecure = "Take alerts from anybody who can reach an address other than loopback."
    add_flag(group, "--web.insecure", insecure)


def run(args: argparse.Namespace) -> int:
    """Receive alerts until SIGTERM or SIGINT; return the exit code."""
    settings = _settings(args)
    listen = _listen_address(args)
    if args.web_token_file is not None:
        parsed("--web.token-file", args.web_token_file, read_token)
    past = ActionHistory()
    if settings.state_file is not None:
        _lock(settings.state_file)
        past = history.load(settings.state_file)
    logs.set_up("logfmt", "warning")  # the logs of libraries
    return asyncio.run(_serve(settings, past, listen, args.web_token_file))


def _settings(args: argparse.Namespace) -> RunnerSettings:
    if args.execute and args.script is None:
        raise ConfigError("--execute: needs --script to say what is done")
    # PATH is not searched
    script = "" if args.script is None else str(Path(args.script).absolute())
    if script and not (Path(script).is_file() and os.access(script, os.X_OK)):
        raise ConfigError(
            f"--script {json.dumps(args.script)}: is not an executable file"
        )
    timeout = seconds_of("--script.timeout", args.script_timeout, 0.1, 3600.0)
    per_model = seconds_of("--limit.per-model", args.limit_per_model, 0.0, FORGET_AFTER)
    return RunnerSettings(
        args.execute, script, timeout, per_model, args.limit_per_hour, args.state_file
    )


def _listen_address(args: argparse.Namespace) -> tuple[str, int]:
    flag = "--web.listen-address"
    text = args.web_listen_address
    host, port = parsed(flag, text, parse_listen_address)
    secured = args.web_token_file is not None
    if secured and args.web_insecure:
        raise ConfigError("--web.insecure and --web.token-file: give one of them")
    if not (secured or args.web_insecure or host.lower() in _LOOPBACK):
        raise ConfigError(
            f"{flag} {json.dumps(text)}: others can reach it: give --web.token-file, "
            "or a loopback address, "
            "or --web.insecure"
        )
    return host, port


def _lock(file: Path) -> None:
    """Lock the lock file of a state file until the process ends, or raise ConfigError.

    Two processes with one state file would overwrite each other's state, and both would
    act.
    """
    lock = file.with_name(f"{file.name}.lock")
    try:
        # Neither followed nor emptied if somebody made it a link to another file.
        number = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(
            f'--state.file "{file}": another process of act uses it'
        ) from error
    except OSError as error:
        why = f"{lock.name} cannot be made beside it: {error.strerror}"
        raise ConfigError(f'--state.file "{file}": {why}') from error


async def _serve(
    settings: RunnerSettings,
    past: ActionHistory,
    listen: tuple[str, int],
    token_file: str | None,
) -> int:
    stop = asyncio.Event()
    with on_each_signal(stop.set):
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        events = Counter(
            EVENTS,
            "Alerts, by result and action.",
            ("event", "action"),
            registry=registry,
        )
        # every series exists from the start: `increase` includes the first event
        for kind in EventKind:
            for action in _ACTIONS:
                events.labels(kind, action)
        runner = Runner(settings, past, lambda event: _log(event, events), _say)
        try:
            listener = await Listener.open(*listen)
        except (OSError, UnicodeError) as error:
            address = format_address(*listen)
            _say(
                f'error: --web.listen-address "{address}": cannot listen: '
                f"{error_text(error)}"
            )
            return PROBLEM
        limiter = ConnectionLimiter()
        receiver = WebhookReceiver(runner.offer, token_file, _say)
        server = await limiter.set_up(receiver.create_app(registry))
        listener.serve(limiter.accept)
        if settings.execute:
            mode = "commands are executed"
        else:
            mode = "dry-run: nothing is executed"
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


def _log(event: Mapping[str, object], events: Counter) -> None:
    """Count an event, and write it; if standard output cannot be written, to standard
    error.
    """
    action = event["action"] or "none"
    events.labels(event["event"], action if action in _ACTIONS else "unknown").inc()
    line = json.dumps(event)
    try:
        print(line, flush=True)
    except OSError as error:
        _say(
            f"standard output: cannot be written: {error.strerror}; the event was "
            f"{line}"
        )


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"{_PROGRAM}: {printable(text)}", file=sys.stderr, flush=True)
