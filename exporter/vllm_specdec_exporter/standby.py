"""Standby: what a sidecar does while its configuration cannot be used.

A container that is not running makes its pod not ready, and a native sidecar that ends before vLLM has begun
can keep it from beginning. So with ``--startup.on-error=wait`` a wrong setting does not end the process: it
says so in its log and as `config_last_reload_successful`, answers the liveness probe, and tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from . import __version__, logs
from .collector import ResultCollector
from .events import Event
from .listener import Listener
from .option_table import STARTUP_ON_ERROR
from .options import ConfigError, Parser, add_flags, gather
from .result import ExporterResult, Reload
from .web_options import LISTEN_ADDRESS, WEB_CONFIG_FILE

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from typing import Any

    Started = TypeVar("Started")

#: Time between two attempts, in seconds. SIGHUP asks for one at once.
RETRY_SECONDS = 5.0


def waits(flags: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Tell whether to wait where the exporter cannot start; not where even that cannot be understood."""
    try:
        values, _ = gather((STARTUP_ON_ERROR,), flags, environment, None)
    except ConfigError:
        return False
    return bool(values[STARTUP_ON_ERROR.name] == "wait")


def without_settings(words: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Stand by until the end where the flags cannot be understood; return the exit code.

    Returns:
        ``None`` where they do not ask for that, and the process is to exit.
    """
    parser = Parser(prog="", description="")
    add_flags(parser, (STARTUP_ON_ERROR, LISTEN_ADDRESS, WEB_CONFIG_FILE))
    try:
        flags = vars(parser.parse_known_args(list(words))[0])
    except SystemExit:
        return None
    if not waits(flags, environment):
        return None

    def start() -> None:
        msg = "the flags cannot be understood, see the line above"
        raise ConfigError(msg)

    wait_for(start, flags, environment)
    return 0


async def listen(host: str, port: int, stop: asyncio.Event | None) -> Listener | None:
    """Return what listens at an address; say why where nothing can.

    Args:
        host: the address, empty for all of the machine's.
        port: the port.
        stop: with it, try until the event is set; without it, once.
    """
    said = False
    while True:
        try:
            return await Listener.open(host, port)
        except OSError as error:
            name_error = isinstance(error, socket.gaierror)  # its numbers are not those of the system
            why = os.strerror(error.errno) if error.errno and not name_error else error.strerror or str(error)
            reason = f'--web.listen-address "{host}:{port}": cannot listen: {why}'
        if stop is None:
            sys.stderr.write(f"vllm-specdec-exporter: error: {reason}\n")
            return None
        if not said:
            logs.write([Event(logging.ERROR, "cannot start, standing by", {"error": reason})])
            said = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RETRY_SECONDS)
            return None


def wait_for(
    start: Callable[[], Started],
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
) -> Started | None:
    """Return what `start` returns, once it does; stand by while it raises `ConfigError`.

    Args:
        start: reads the configuration, and raises `ConfigError` where it cannot be used.
        flags: what argparse found, by option name; says where to answer.
        environment: the process environment; the same.

    Returns:
        ``None`` if SIGTERM or SIGINT came first.
    """
    try:
        return start()
    except ConfigError as error:
        logs.set_up("logfmt", "info")
        return asyncio.run(_wait(start, error, flags, environment))


async def _wait(
    start: Callable[[], Started],
    error: ConfigError,
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
) -> Started | None:
    stop, again = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        again.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGHUP, again.set)
    said = ""
    async with _answering(flags, environment):
        while True:
            if str(error) != said:
                said = str(error)
                logs.write([Event(logging.ERROR, "cannot start, standing by", {"error": said})])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(again.wait(), RETRY_SECONDS)
            again.clear()
            if stop.is_set():
                logs.write([Event(logging.INFO, "stopping")])
                return None
            try:
                return start()
            except ConfigError as raised:
                error = raised


@contextlib.asynccontextmanager
async def _answering(flags: Mapping[str, Any], environment: Mapping[str, str]) -> AsyncIterator[None]:
    """Answer probes and scrapes where the exporter would, as far as that much of its settings can be used."""
    runner = web.AppRunner(_app(), access_log=None, shutdown_timeout=0.5, handle_signals=False)
    await runner.setup()
    assert runner.server is not None  # set up
    listener = None
    try:
        with contextlib.suppress(OSError):  # then nobody is answered, and the process lives on all the same
            listener = await Listener.open(*_address(flags, environment))
            await listener.serve(runner.server, _tls(flags, environment))
        yield
    finally:
        if listener is not None:
            listener.close()
        await runner.cleanup()


def _address(flags: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[str, int]:
    try:
        values, _ = gather((LISTEN_ADDRESS,), flags, environment, None)
    except ConfigError:
        values, _ = gather((LISTEN_ADDRESS,), {}, {}, None)
    address: tuple[str, int] = values[LISTEN_ADDRESS.name]
    return address


def _tls(flags: Mapping[str, Any], environment: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the web configuration's TLS. Where it is what cannot be used, there is none."""
    path = gather((WEB_CONFIG_FILE,), flags, environment, None)[0][WEB_CONFIG_FILE.name]
    if not path:
        return None
    from .webconfig.fields import WebConfigError
    from .webconfig.source import Source

    try:
        return Source(path).load().context
    except WebConfigError:
        return None


def _app() -> web.Application:
    """Return what answers meanwhile. Nothing in it is of the configuration, so nobody needs a password."""
    app = web.Application()
    registry = CollectorRegistry()
    registry.register(ResultCollector(_result))
    app.router.add_get("/metrics", make_aiohttp_handler(registry))
    app.router.add_get("/-/healthy", _standing_by)
    app.router.add_get("/-/ready", _standing_by)
    return app


def _result() -> ExporterResult:
    return ExporterResult(
        version=__version__,
        timestamp_seconds=time.time(),
        targets=(),
        thresholds={},
        reload=Reload(successful=False),
    )


async def _standing_by(_request: web.Request) -> web.Response:
    return web.Response(text="standing by: the configuration cannot be used, see the log\n")
