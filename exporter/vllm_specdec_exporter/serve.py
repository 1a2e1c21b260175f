"""`serve`: the process around the exporter, from the flags to the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from . import __version__, config, logs, standby
from .events import Event
from .exporter import Exporter
from .option_table import OPTIONS
from .options import ENVIRONMENT_PREFIX, ConfigError, add_flags, unknown_variables
from .server import create_app
from .web_options import CONFIG_FILE_VARIABLE, WebConfigFileError, add_config_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from .webconfig.guard import Guard

#: How long open connections may hold up the end of the process, in seconds.
_SHUTDOWN_SECONDS = 0.5

#: Those of the command `dashboards`, which may share an environment with the exporter.
_GRAFANA_VARIABLES = ENVIRONMENT_PREFIX + "GRAFANA_"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the flags of `serve`."""
    add_config_file(parser)
    parser.add_argument(
        "--config.check",
        dest="config_check",
        action="store_true",
        help="Check the configuration, say what is wrong, and exit.",
    )
    add_flags(parser, OPTIONS)


def stand_by(words: Sequence[str]) -> int | None:
    """Stand by where the flags themselves cannot be understood, if they ask for it; return the exit code.

    Returns:
        ``None`` where the process is to exit instead.
    """
    return standby.without_settings(words, os.environ)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    file = args.config_file or os.environ.get(CONFIG_FILE_VARIABLE, "")
    load = partial(config.load, vars(args), os.environ, file)
    if args.config_check:
        Exporter(load)
        sys.stdout.write("the configuration is valid\n")
        return 0
    waits = standby.waits(vars(args), os.environ)
    exporter = standby.wait_for(lambda: Exporter(load), vars(args), os.environ) if waits else Exporter(load)
    if exporter is None:
        return 0
    logs.set_up(exporter.config.log_format, exporter.config.log_level)
    for name in unknown_variables(OPTIONS, os.environ):
        if name != CONFIG_FILE_VARIABLE and not name.startswith(_GRAFANA_VARIABLES):
            logs.write([Event(logging.WARNING, "unknown environment variable", {"name": name})])
    return asyncio.run(_serve(exporter, waits=waits))


async def _serve(exporter: Exporter, *, waits: bool) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    guard = _guard(exporter)
    runner = web.AppRunner(
        create_app(exporter, guard), access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, handle_signals=False
    )
    await runner.setup()
    assert runner.server is not None  # set up
    host, port = exporter.config.listen
    listener = await standby.listen(host, port, stop if waits else None)
    if listener is None:
        await runner.cleanup()
        return 0 if stop.is_set() else 1
    if guard is None:
        await listener.serve(runner.server)
    else:
        await guard.start(listener, runner.server)
    exporter.start()
    loop.add_signal_handler(signal.SIGHUP, _reloader(exporter))
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
    await stop.wait()
    logs.write([Event(logging.INFO, "stopping")])
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


def _guard(exporter: Exporter) -> Guard | None:
    path = exporter.config.web_config_file
    if not path:
        return None
    # Imported here, for whoever serves without such a file.
    from .webconfig.fields import WebConfigError
    from .webconfig.guard import Guard
    from .webconfig.source import Source

    source = Source(path)
    try:
        return Guard(source, source.load(), exporter.note_web_config)
    except WebConfigError as error:  # it was right a moment ago
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
