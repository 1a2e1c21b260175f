"""Standby: what a sidecar does while its configuration cannot be used.

A container that is not running makes its pod not ready, and a native sidecar that ends before vLLM has begun
can keep it from beginning. So with ``--startup.on-error=wait`` a wrong setting does not end the process: it
says so in its log and as `config_last_reload_successful`, answers the liveness probe, and tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from .. import __version__
from ..config.addresses import format_address
from ..config.options import ConfigError, Parser, add_flags, gather
from ..observe.result import ExporterResult, Reload
from ..publish.events import Event
from . import logs
from .configuration import build_upstream
from .connection_limits import HANDSHAKE_SECONDS, MOST_HANDSHAKES, ConnectionLimiter
from .endpoints import make_handler
from .health import values_of, web_values
from .option_table import OPTIONS, STARTUP_ON_ERROR
from .request_options import build_tap
from .shutdown import Shutdown
from .sockets import Listener, error_text
from .web_options import CONFIG_FILE_VARIABLE, MOST_REQUESTS, WEB_OPTIONS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, Self

    from .tap.tap import TapService

    Started = TypeVar("Started")

#: Time between two attempts, in seconds. SIGHUP asks for one at once.
RETRY_SECONDS = 5.0

#: What says whom the tap relays to, and how.
_TAP = next(option for option in OPTIONS if option.name == "tap.listen-address")
_TAP_OPTIONS = tuple(option for option in OPTIONS if option.name.startswith(("vllm.", "tap.")))


def waits_on_error(flags: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Tell whether to wait where the exporter cannot start; also where it was meant to, by a wrong word."""
    try:
        values, _ = gather((STARTUP_ON_ERROR,), flags, environment, None)
    except ConfigError:
        return True
    return bool(values[STARTUP_ON_ERROR.name] == "wait")


def stand_by_without_flags(words: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Stand by until the end where the flags cannot be understood; return the exit code.

    Returns:
        ``None`` where they do not ask for that, and the process is to exit.
    """
    parser = Parser(prog="", description="")
    add_flags(parser, (STARTUP_ON_ERROR, *WEB_OPTIONS, *_TAP_OPTIONS))
    try:
        flags = vars(parser.parse_known_args(list(words))[0])
    except SystemExit:
        return None
    if "--config.check" in words or not waits_on_error(flags, environment):
        return None

    def start() -> None:
        msg = "the flags cannot be understood, see the line above"
        raise ConfigError(msg)

    async def stand() -> None:
        with Shutdown.on_signals() as ending:
            await wait_for(start, flags, environment, ending)

    asyncio.run(stand())
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
            return await Listener.open(host, port, most_handshakes=MOST_HANDSHAKES)
        except (OSError, UnicodeError) as error:
            reason = (
                f'--web.listen-address "{format_address(host, port)}": cannot listen: {error_text(error)}'
            )
        if stop is None:
            sys.stderr.write(f"vllm-specdec-exporter: error: {reason}\n")
            return None
        if not said:
            logs.write([Event(logging.ERROR, "cannot start, standing by", {"error": reason})])
            said = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RETRY_SECONDS)
            return None


async def wait_for(
    start: Callable[[], Started],
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    ending: Shutdown,
) -> tuple[Started, TapService | None] | None:
    """Return what `start` returns, once it does; stand by while it raises `ConfigError`.

    Meanwhile a tap relays, as far as its own settings can be used, for traffic goes through it. It comes back
    with what was started.

    Args:
        start: reads the configuration, and raises `ConfigError` where it cannot be used.
        flags: what argparse found, by option name; says where to answer.
        environment: the process environment; the same.
        ending: tells when to end.

    Returns:
        ``None`` if SIGTERM or SIGINT came first.
    """
    try:
        return start(), None
    except ConfigError as error:
        logs.set_up("logfmt", "info")
        return await _wait(start, error, flags, environment, ending)


async def _wait(
    start: Callable[[], Started],
    error: ConfigError,
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    ending: Shutdown,
) -> tuple[Started, TapService | None] | None:
    again = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again.set)
    said = ""
    async with _Stand(flags, environment, ending) as stand:
        while True:
            await stand.answer()
            if str(error) != said:
                said = str(error)
                logs.write([Event(logging.ERROR, "cannot start, standing by", {"error": said})])
            await _any(again, ending.stop)
            again.clear()
            if ending.stop.is_set():
                logs.write([Event(logging.INFO, "stopping")])
                return None
            try:
                return start(), stand.take_tap()
            except ConfigError as raised:
                error = raised


async def _any(*events: asyncio.Event) -> None:
    """Wait until one of the events is set, or it is time for another attempt."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=RETRY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


class _Stand:
    """Answers probes and scrapes where the exporter would, as far as its settings tell where that is."""

    def __init__(self, flags: Mapping[str, Any], environment: Mapping[str, str], ending: Shutdown) -> None:
        self._flags, self._environment = flags, environment
        self._ending = ending
        self._admission = ConnectionLimiter(MOST_REQUESTS)
        self._runner: web.AppRunner | None = None
        self._listener: Listener | None = None
        self._tap: TapService | None = None
        self._untapped = ""
        self._said = ""

    async def __aenter__(self) -> Self:
        self._runner = await self._admission.set_up(_app())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ending.end_tap(self._tap)
        if self._listener is not None:
            self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def take_tap(self) -> TapService | None:
        """Return the tap, which goes on."""
        tap, self._tap = self._tap, None
        return tap

    async def answer(self) -> None:
        """Listen, unless it does; where it cannot, nobody is answered, and the process lives on."""
        self._relay()
        if self._listener is not None:
            return
        address, web_config = self._where()
        listener = None
        try:
            listener = await Listener.open(*address, most_handshakes=MOST_HANDSHAKES)
            listener.serve(self._admission, _tls(web_config), HANDSHAKE_SECONDS)
        except (OSError, UnicodeError) as error:
            if listener is not None:
                listener.close()
            if self._said != str(error):
                self._said = str(error)
                logs.write([Event(logging.ERROR, "standing by without an answer", {"error": self._said})])
            return
        self._listener = listener

    def _relay(self) -> None:
        """Relay where a tap would, if its settings can be used; nothing is observed."""
        if self._tap is not None:
            return
        why = ""
        for flags, environment in self._settings():
            try:
                values = values_of(_TAP_OPTIONS, flags, environment)
                upstream = build_upstream(values, timeout=1.0)
                config = build_tap(values, upstream.targets)
                if config is not None:
                    # Imported here, for whoever has no tap.
                    from .tap.tap import TapService

                    self._tap = TapService(config, upstream)
                    self._tap.keep_trying()
                    return
            except ConfigError as error:
                why = why or str(error)
        wished = self._flags.get(_TAP.name) or self._environment.get(_TAP.variable)
        if wished and why and why != self._untapped:
            self._untapped = why
            logs.write([Event(logging.WARNING, "no tap while standing by", {"error": why})])

    def _where(self) -> tuple[tuple[str, int], str]:
        """Return address and web configuration: of all settings, without the file, or the defaults."""
        for flags, environment in self._settings():
            with contextlib.suppress(ConfigError):
                return web_values(flags, environment)
        return web_values({}, {})

    def _settings(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, str]]]:
        """Yield flags and environment, as they are and without the file."""
        yield self._flags, self._environment
        bare = {name: value for name, value in self._environment.items() if name != CONFIG_FILE_VARIABLE}
        yield {**self._flags, "config_file": None}, bare


def _tls(path: str) -> ssl.SSLContext | None:
    """Return the web configuration's TLS. Where that is what cannot be used, there is none."""
    if not path:
        return None
    from .web_config.document import WebConfigFile
    from .web_config.fields import WebConfigError

    try:
        return WebConfigFile(path).load().context
    except WebConfigError:
        return None


def _app() -> web.Application:
    """Return what answers meanwhile. Nothing in it is of the configuration, so nobody needs a password."""
    app = web.Application()
    app.router.add_get("/metrics", make_handler(_result, process_metrics=False))
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
