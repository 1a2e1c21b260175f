"""`serve`: the process around the exporter, from the flags to the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .. import __version__
from ..config.addresses import format_address
from ..config.options import ENVIRONMENT_PREFIX, ConfigError, add_flags, unknown_variables
from ..publish.events import Event
from . import configuration as config
from . import logs, standby
from .configuration import WebConfigFileError
from .connection_limits import ConnectionLimiter
from .endpoints import create_app
from .exporter import Exporter
from .option_table import OPTIONS
from .shutdown import Shutdown
from .sockets import error_text
from .web_options import CONFIG_FILE_VARIABLE, add_config_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .configuration import ServeConfig
    from .tap.tap import TapService
    from .web_config.middleware import WebConfigMiddleware

_EXIT_CODES = (
    "Exit codes: 0 ended by SIGTERM or SIGINT; 1 it cannot listen; 2 settings that cannot be used (with "
    "--startup.on-error=wait it stands by instead)."
)

#: Those of the command `dashboards`, which may share an environment with the exporter.
_GRAFANA_VARIABLES = ENVIRONMENT_PREFIX + "GRAFANA_"


#: The flags that matter first.
_FIRST = ("vllm.url", "spec.config", "baseline.file", "web.listen-address")

#: Groups of the others in the help, by the first part of their names.
_SUBJECTS = {
    "vllm": "connection to vLLM",
    "poll": "polling and windows",
    "window": "polling and windows",
    "judgement": "polling and windows",
    "cost": "cost of speculation and thresholds",
    "threshold": "cost of speculation and thresholds",
    "web": "the exporter's own port",
    "tap": "the tap: a relay that observes single requests",
    "push": "single requests",
    "requests": "single requests",
    "startup": "start and log",
    "log": "start and log",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the flags of `serve`."""
    parser.epilog = f"{parser.epilog or ''} {_EXIT_CODES}".lstrip()
    add_config_file(parser)
    parser.add_argument(
        "--config.check",
        dest="config_check",
        action="store_true",
        help="Check the configuration, say what is wrong, and exit.",
    )
    parser.usage = f"{parser.prog} [FLAG ...]"
    add_flags(parser, OPTIONS, _SUBJECTS, _FIRST)


def stand_by(words: Sequence[str]) -> int | None:
    """Stand by where the flags themselves cannot be understood, if they ask for it; return the exit code.

    Returns:
        ``None`` where the process is to exit instead.
    """
    return standby.stand_by_without_flags(words, os.environ)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    file = args.config_file or os.environ.get(CONFIG_FILE_VARIABLE, "")
    load = partial(config.load, vars(args), os.environ, file)
    if args.config_check:
        Exporter(load)
        sys.stdout.write("the configuration is valid\n")
        return 0
    waits = standby.waits_on_error(vars(args), os.environ)
    return asyncio.run(_start(partial(_prepare, load), vars(args), waits=waits))


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the settings make, and the files that they name: all that can fail for these."""

    exporter: Exporter
    guard: WebConfigMiddleware | None
    tap: TapService | None


def _prepare(load: Callable[[], ServeConfig]) -> _Parts:
    """Return the parts of the process; nothing listens yet.

    Raises:
        ConfigError: settings, or files that they name, cannot be used.
    """
    exporter = Exporter(load)
    return _Parts(exporter, _guard(exporter), _tap(exporter.config))


async def _start(start: Callable[[], _Parts], flags: Mapping[str, Any], *, waits: bool) -> int:
    with Shutdown.on_signals() as ending:
        relaying = None
        if waits:
            started = await standby.wait_for(start, flags, os.environ, ending)
            if started is None:
                return 0
            parts, relaying = started
        else:
            parts = start()
        exporter = parts.exporter
        logs.set_up(exporter.config.log_format, exporter.config.log_level)
        for name in unknown_variables(OPTIONS, os.environ):
            if name != CONFIG_FILE_VARIABLE and not name.startswith(_GRAFANA_VARIABLES):
                logs.write([Event(logging.WARNING, "unknown environment variable", {"name": name})])
        return await _serve(parts, relaying, ending, waits=waits)


async def _serve(parts: _Parts, relaying: TapService | None, ending: Shutdown, *, waits: bool) -> int:
    exporter, guard = parts.exporter, parts.guard
    try:
        tap = await _relay(exporter, parts.tap, relaying, waits=waits)
    except OSError as error:
        address = format_address(*exporter.config.tap.listen) if exporter.config.tap else ""
        where = f'--tap.listen-address "{address}"'
        sys.stderr.write(f"vllm-specdec-exporter: error: {where}: cannot listen: {error_text(error)}\n")
        return 1
    admission = ConnectionLimiter(exporter.config.max_requests)
    runner = await admission.set_up(create_app(exporter, guard))
    host, port = exporter.config.listen
    listener = await standby.listen(host, port, ending.stop if waits else None)
    if listener is None:
        await ending.end_tap(tap)
        await runner.cleanup()
        return 0 if ending.stop.is_set() else 1
    if guard is None:
        listener.serve(admission)
    else:
        await guard.start(listener, admission)
    exporter.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reloader(exporter))
    targets = [target.name for target in exporter.config.upstream.targets]
    logs.write(
        [
            Event(
                logging.INFO,
                "listening",
                {
                    "version": __version__,
                    "address": ",".join(listener.addresses),
                    "targets": ",".join(targets),
                },
            )
        ]
    )
    await ending.stop.wait()
    logs.write([Event(logging.INFO, "stopping")])
    await ending.end_tap(tap)
    listener.close()
    await exporter.stop()
    if guard is not None:
        await guard.stop()
    await runner.cleanup()
    if guard is not None and not guard.has_ended():
        # A thread that comes back from bcrypt into a Python that is being torn down would abort it.
        logging.shutdown()
        os._exit(0)
    return 0


async def _relay(
    exporter: Exporter, tap: TapService | None, before: TapService | None, *, waits: bool
) -> TapService | None:
    """Let the tap relay; one from before the settings were mended goes on if they mean the same.

    Returns:
        The one in force.

    Raises:
        OSError: it cannot listen, and is not to wait until it can.
    """
    if tap is not None and before is not None and before.means(tap.config, exporter.config.upstream):
        tap = before
    else:
        await _replace(before)
    if tap is None:
        return None
    exporter.requests.listen_to(tap.tap)
    if waits:
        tap.keep_trying()
    else:
        await tap.open()
    return tap


async def _replace(tap: TapService | None) -> None:
    """End a tap whose place another one takes."""
    if tap is not None:
        tap.cut()
        await tap.stop()


def _tap(config: ServeConfig) -> TapService | None:
    if config.tap is None:
        return None
    # Imported here, for whoever has no tap.
    from .tap.tap import TapService

    return TapService(config.tap, config.upstream)


def _guard(exporter: Exporter) -> WebConfigMiddleware | None:
    path = exporter.config.web_config_file
    if not path:
        return None
    # Imported here, for whoever serves without such a file.
    from .web_config.document import WebConfigFile
    from .web_config.fields import WebConfigError
    from .web_config.middleware import WebConfigMiddleware

    source = WebConfigFile(path)
    try:
        return WebConfigMiddleware(source, source.load(), exporter.note_web_config)
    except WebConfigError as error:  # it was right a moment ago, when the settings were read
        raise WebConfigFileError(path, str(error)) from error


def _reloader(exporter: Exporter) -> Callable[[], None]:
    """Return what SIGHUP does. The task is kept from the garbage collector while it runs."""
    running: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        with contextlib.suppress(ConfigError):  # already logged, and shown as a metric
            await exporter.reload()

    def begin() -> None:
        task = asyncio.ensure_future(reload())
        running.add(task)
        task.add_done_callback(running.discard)

    return begin
