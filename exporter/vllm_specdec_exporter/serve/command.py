"""The command `serve`: the process of the exporter, from the flags to the exit code."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .. import __version__
from ..config.listen_address import format_address
from ..config.options import (
    ENVIRONMENT_PREFIX,
    ConfigError,
    Parser,
    add_flags,
    unknown_variables,
)
from ..config.spelling import hint, nearest
from ..listener.connection_limits import ConnectionLimiter
from ..listener.sockets import error_text
from ..listener.web_config import load_web_config
from ..runtime import logs
from ..runtime.daemon_threads import in_daemon_thread
from ..runtime.shutdown import END_SECONDS, Shutdown
from ..settings import configuration as config
from ..settings.configuration import ServeConfig
from ..settings.option_table import OPTIONS
from ..settings.web_options import CONFIG_FILE_VARIABLE, add_config_file
from . import standby
from .endpoints import create_app
from .exporter import Exporter, log_doubts
from .tap import end_tap, make_tap

if TYPE_CHECKING:
    from aiohttp import web

    from ..listener.web_config.middleware import WebConfigMiddleware
    from ..settings.request_options import TapConfig
    from .tap.tap import Tap

_EXIT_CODES = (
    "Exit codes: 0 ended by SIGTERM or SIGINT; 1 cannot listen; 2 settings that "
    "cannot be used (with --startup.on-error=wait it stands by instead)."
)

#: Prefix of the variables of the command `dashboards`, which may share an environment
#: with the exporter.
_GRAFANA_VARIABLES = ENVIRONMENT_PREFIX + "GRAFANA_"
#: Those that the exporter knows.
_VARIABLES = tuple(option.variable for option in OPTIONS)
#: The most important flags, first in the help.
_FIRST = (
    "vllm.url",
    "spec.config",
    "cost.hardware",
    "baseline.file",
    "web.listen-address",
)

#: Groups of the other flags in the help, by the first part of their names.
_SUBJECTS = {
    "vllm": "connection to vLLM",
    "spec": "connection to vLLM",
    "poll": "polling and windows",
    "window": "polling and windows",
    "judgement": "polling and windows",
    "cost": "cost of speculation and thresholds",
    "threshold": "cost of speculation and thresholds",
    "web": "the exporter's own port",
    "tap": "the tap: a reverse proxy that observes single requests",
    "push": "single requests",
    "requests": "single requests",
    "startup": "start and log",
    "log": "start and log",
}


def add_arguments(parser: Parser) -> None:
    """Add the flags of `serve` to `parser`."""
    parser.show_first(
        *(f"--{name}" for name in _FIRST),
        "--config.file",
        "--config.check",
        "--cost.model",
        "--poll.interval",
        "--tap.listen-address",
    )
    parser.epilog = f"{parser.epilog or ''} {_EXIT_CODES}".lstrip()
    add_config_file(parser)
    parser.add_argument(
        "--config.check",
        dest="config_check",
        action="store_true",
        help="Check the configuration, write the first error, and exit.",
    )
    parser.usage = f"{parser.prog} [FLAG ...]"
    add_flags(parser, OPTIONS, _SUBJECTS, _FIRST)


def stand_by(arguments: Sequence[str]) -> int | None:
    """Stand by after invalid flags if --startup.on-error=wait is set; ``None`` to exit
    at once.
    """
    _raise_descriptor_limit()
    return standby.stand_by_without_flags(arguments, os.environ)


def _raise_descriptor_limit() -> None:
    """Raise the limit of file descriptors to its maximum: each server needs one, and a
    client of the tap two.
    """
    _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    file = args.config_file or os.environ.get(CONFIG_FILE_VARIABLE, "")
    load = partial(config.load, vars(args), os.environ, file)
    if args.config_check:
        exporter = Exporter(load)
        doubts = config.doubts(exporter.config)
        for name in _unknown_variables():
            near = hint(name, _VARIABLES)
            doubts.append(f"unknown environment variable {name}{near}")
        for doubt in doubts:
            sys.stderr.write(f"warning: {doubt}\n")
        sys.stdout.write("the configuration is valid\n")
        return 0
    _raise_descriptor_limit()
    wait = standby.waits_on_error(vars(args), os.environ)
    return asyncio.run(_start(partial(_prepare, load), vars(args), wait=wait))


class _Parts(Struct, frozen=True):
    """The parts of the process whose creation can fail because of settings or files."""

    exporter: Exporter
    guard: WebConfigMiddleware | None
    tap: Tap | None


def _prepare(load: Callable[[], ServeConfig]) -> _Parts:
    """Create the parts of the process, or raise ConfigError. Nothing listens yet."""
    exporter = Exporter(load)
    guard = None
    path = exporter.config.web_config_file
    if path:
        # here: most sidecars have no such file
        from ..listener.web_config.middleware import WebConfigMiddleware

        guard = WebConfigMiddleware(*load_web_config(path), exporter.note_web_config)
    return _Parts(
        exporter, guard, make_tap(exporter.config.tap, exporter.config.upstream)
    )


async def _start(
    prepare: Callable[[], _Parts], flags: Mapping[str, Any], *, wait: bool
) -> int:
    with Shutdown.on_signals() as shutdown:
        prepared: tuple[_Parts, Tap | None] | None = None
        if wait:
            prepared = await standby.wait_for(prepare, flags, os.environ, shutdown)
        else:
            started = await shutdown.unless_stopped(in_daemon_thread(prepare))
            if started is not None:
                prepared = started, None
        if prepared is None:
            return 0
        parts, standby_tap = prepared
        exporter = parts.exporter
        logs.set_up(exporter.config.log_format, exporter.config.log_level)
        _warn_of_unknown_variables()
        log_doubts(exporter.config)
        return await _serve(parts, standby_tap, shutdown, wait=wait)


def _unknown_variables() -> list[str]:
    """Return the variables that mean nothing."""
    return [
        name
        for name in unknown_variables(OPTIONS, os.environ)
        if name != CONFIG_FILE_VARIABLE and not name.startswith(_GRAFANA_VARIABLES)
    ]


def _warn_of_unknown_variables() -> None:
    for name in _unknown_variables():
        near = nearest(name, _VARIABLES)
        logs.log(
            logging.WARNING,
            "unknown environment variable",
            name=name,
            did_you_mean=near or None,
        )


async def _serve(
    parts: _Parts, standby_tap: Tap | None, shutdown: Shutdown, *, wait: bool
) -> int:
    exporter = parts.exporter
    guard = parts.guard
    try:
        tap = await _start_tap(exporter, parts.tap, standby_tap, wait=wait)
    except OSError as error:
        _report_taken(exporter.config.tap, error)
        return 1
    limiter = ConnectionLimiter()
    runner = await limiter.set_up(create_app(exporter, guard))
    host, port = exporter.config.listen
    # The tap comes first: clients of vLLM wait for it, scrapes can wait.
    listener = await standby.listen(host, port, shutdown if wait else None)
    if listener is None:
        await end_tap(tap, shutdown.hurry)
        await runner.cleanup()
        if shutdown.stop.is_set():
            return 0
        return 1
    if guard is None:
        listener.serve(limiter.accept)
    else:
        await guard.start(listener, limiter)
    exporter.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reloader(exporter))
    logs.log(
        logging.INFO,
        "listening",
        version=__version__,
        address=",".join(listener.addresses),
        targets=",".join(target.name for target in exporter.config.upstream.targets),
    )
    await shutdown.stop.wait()
    logs.log(logging.INFO, "stopping")
    # Metrics are served while the tap drains, which may take long.
    await end_tap(tap, shutdown.hurry)
    listener.close()
    await _end(parts, runner)
    return 0


def _report_taken(tap: TapConfig | None, error: OSError) -> None:
    address = format_address(*tap.listen) if tap else ""
    sys.stderr.write(
        f'vllm-specdec-exporter: error: --tap.listen-address "{address}": cannot '
        f"listen: {error_text(error)}\n"
    )


async def _end(parts: _Parts, runner: web.AppRunner) -> None:
    guard = parts.guard
    with contextlib.suppress(TimeoutError):  # such as a reload whose files hang
        async with asyncio.timeout(END_SECONDS):
            await parts.exporter.stop()
            if guard is not None:
                await guard.stop()
            await runner.cleanup()
    if guard is not None:
        # A thread that returns from bcrypt while the interpreter shuts down would abort
        # the process.
        logging.shutdown()
        os._exit(0)


async def _start_tap(
    exporter: Exporter, tap: Tap | None, standby_tap: Tap | None, *, wait: bool
) -> Tap | None:
    """Start the tap, or keep that of the standby if its settings are the same; OSError
    unless `wait`.
    """
    if standby_tap is not None:
        if tap is not None and standby_tap.means(tap.config, exporter.config.upstream):
            tap = standby_tap
        else:
            await standby_tap.stop(lambda: True)
    if tap is None:
        return None
    # Before it listens, so that no request passes unobserved.
    exporter.requests.attach_tap(tap)
    if wait:
        tap.keep_trying()
    else:
        await tap.open()
    return tap


def _reloader(exporter: Exporter) -> Callable[[], None]:
    #: Keeps the tasks from the garbage collector.
    running: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        # already logged, and exposed as a metric
        with contextlib.suppress(ConfigError):
            await exporter.reload()

    def handle() -> None:
        task = asyncio.ensure_future(reload())
        running.add(task)
        task.add_done_callback(running.discard)

    return handle
