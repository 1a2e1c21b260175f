"""`serve`: the process around the exporter, from the flags to the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from . import __version__, config, logs
from .events import Event
from .exporter import Exporter
from .option_table import OPTIONS
from .options import ENVIRONMENT_PREFIX, ConfigError, add_flags, unknown_variables
from .server import create_app

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

#: How long open connections may hold up the end of the process, in seconds.
_SHUTDOWN_SECONDS = 0.5

_FILE_VARIABLE = "VLLM_SPECDEC_EXPORTER_CONFIG_FILE"
#: Those of the command `dashboards`, which may share an environment with the exporter.
_GRAFANA_VARIABLES = ENVIRONMENT_PREFIX + "GRAFANA_"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the flags of `serve`."""
    parser.add_argument(
        "--config.file",
        dest="config_file",
        metavar="FILE",
        help=f"YAML file of settings. [${_FILE_VARIABLE}]",
    )
    parser.add_argument(
        "--config.check",
        dest="config_check",
        action="store_true",
        help="Check the configuration, say what is wrong, and exit.",
    )
    add_flags(parser, OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    file = args.config_file or os.environ.get(_FILE_VARIABLE, "")
    load = partial(config.load, vars(args), os.environ, file)
    if args.config_check:
        Exporter(load)
        sys.stdout.write("the configuration is valid\n")
        return 0
    exporter = Exporter(load)
    logs.set_up(exporter.config.log_format, exporter.config.log_level)
    for name in unknown_variables(OPTIONS, os.environ):
        if name != _FILE_VARIABLE and not name.startswith(_GRAFANA_VARIABLES):
            logs.write([Event(logging.WARNING, "unknown environment variable", {"name": name})])
    return asyncio.run(_serve(exporter))


async def _serve(exporter: Exporter) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, _reloader(exporter))
    runner = web.AppRunner(
        create_app(exporter), access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, handle_signals=False
    )
    await runner.setup()
    host, port = exporter.config.listen
    try:
        site = web.TCPSite(runner, host or None, port)
        await site.start()
    except OSError as error:
        await runner.cleanup()
        name_error = isinstance(error, socket.gaierror)  # its numbers are not those of the system
        reason = os.strerror(error.errno) if error.errno and not name_error else error.strerror or str(error)
        sys.stderr.write(
            f'vllm-specdec-exporter: error: --web.listen-address "{host}:{port}": cannot listen: {reason}\n'
        )
        return 1
    exporter.start()
    listening = [f"{address[0]}:{address[1]}" for address in runner.addresses]
    targets = [target.name for target in exporter.config.upstream.targets]
    logs.write(
        [
            Event(
                logging.INFO,
                "listening",
                {"version": __version__, "address": ",".join(listening), "targets": ",".join(targets)},
            )
        ]
    )
    await stop.wait()
    logs.write([Event(logging.INFO, "stopping")])
    await exporter.stop()
    await runner.cleanup()
    return 0


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
