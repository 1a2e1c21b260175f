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
from .web_options import CONFIG_FILE_VARIABLE, WEB_OPTIONS, web_values

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Self

    Started = TypeVar("Started")

#: Time between two attempts, in seconds. SIGHUP asks for one at once.
RETRY_SECONDS = 5.0


def waits(flags: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Tell whether to wait where the exporter cannot start; also where it was meant to, by a wrong word."""
    try:
        values, _ = gather((STARTUP_ON_ERROR,), flags, environment, None)
    except ConfigError:
        return True
    return bool(values[STARTUP_ON_ERROR.name] == "wait")


def without_settings(words: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Stand by until the end where the flags cannot be understood; return the exit code.

    Returns:
        ``None`` where they do not ask for that, and the process is to exit.
    """
    parser = Parser(prog="", description="")
    add_flags(parser, (STARTUP_ON_ERROR, *WEB_OPTIONS))
    try:
        flags = vars(parser.parse_known_args(list(words))[0])
    except SystemExit:
        return None
    if "--config.check" in words or not waits(flags, environment):
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
        except UnicodeError:
            reason = f'--web.listen-address "{host}:{port}": cannot listen: not a host name'
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
    async with _Stand(flags, environment) as stand:
        while True:
            await stand.answer()
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


class _Stand:
    """Answers probes and scrapes where the exporter would, as far as its settings tell where that is."""

    def __init__(self, flags: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self._flags, self._environment = flags, environment
        self._runner = web.AppRunner(_app(), access_log=None, shutdown_timeout=0.5, handle_signals=False)
        self._listener: Listener | None = None
        self._said = ""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    async def answer(self) -> None:
        """Listen, unless it does; where it cannot, nobody is answered, and the process lives on."""
        if self._listener is not None:
            return
        assert self._runner.server is not None  # set up
        address, web_config = self._where()
        listener = None
        try:
            listener = await Listener.open(*address)
            await listener.serve(self._runner.server, _tls(web_config))
        except (OSError, UnicodeError) as error:
            if listener is not None:
                listener.close()
            if self._said != str(error):
                self._said = str(error)
                logs.write([Event(logging.ERROR, "standing by without an answer", {"error": self._said})])
            return
        self._listener = listener

    def _where(self) -> tuple[tuple[str, int], str]:
        """Return address and web configuration: of all settings, without the file, or the defaults."""
        bare = {name: value for name, value in self._environment.items() if name != CONFIG_FILE_VARIABLE}
        for flags, environment in (
            (self._flags, self._environment),
            ({**self._flags, "config_file": None}, bare),
        ):
            with contextlib.suppress(ConfigError):
                return web_values(flags, environment)
        return web_values({}, {})


def _tls(path: str) -> ssl.SSLContext | None:
    """Return the web configuration's TLS. Where that is what cannot be used, there is none."""
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
    app.router.add_route("*", "/{path:.*}", _not_started)
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


async def _not_started(_request: web.Request) -> web.Response:
    text = (
        "The exporter has not started: its configuration cannot be used. Its log says why:\n"
        "kubectl logs POD -c specdec-exporter\n"
    )
    return web.Response(status=503, text=text)
