"""Standby of a sidecar while its configuration cannot be used.

A container that is not running makes its pod not ready, and a native sidecar that exits
can prevent the start of vLLM. So with ``--startup.on-error=wait`` the process does not
exit on a wrong setting: it reports it in its log and as
`config_last_reload_successful`, responds to the liveness probe, and retries.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aiohttp import web

from .. import __version__
from ..config.listen_address import format_address, parse_listen_address
from ..config.options import ConfigError, Parser, add_flags, gather
from ..listener.connection_limits import ConnectionLimiter
from ..listener.sockets import Listener, error_text
from ..listener.web_config import WebConfigFileError, load_web_config
from ..observe.result import ExporterResult, Reload
from ..runtime import logs
from ..runtime.daemon_threads import in_daemon_thread
from ..runtime.shutdown import Shutdown
from ..settings.configuration import build_upstream
from ..settings.option_table import OPTIONS, STARTUP_ON_ERROR
from ..settings.request_options import build_tap
from ..settings.web_options import (
    CONFIG_FILE_VARIABLE,
    LISTEN_ADDRESS,
    WEB_OPTIONS,
    values_of,
    web_values,
)
from .endpoints import make_handler
from .tap import end_tap, make_tap
from .texts import Texts

if TYPE_CHECKING:
    import ssl

    from .tap.tap import Tap

    Prepared = TypeVar("Prepared")

RETRY_SECONDS = 5.0  # time between two attempts, in seconds; SIGHUP starts one at once
#: The options that the tap needs.
_TAP_OPTIONS = tuple(
    option for option in OPTIONS if option.name.startswith(("vllm.", "tap."))
)
#: The one without which there is no tap.
_TAP = next(option for option in _TAP_OPTIONS if option.name == "tap.listen-address")


def waits_on_error(flags: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Return whether to wait if the exporter cannot start: if the option says so, or
    its value is invalid.
    """
    try:
        values, _ = gather((STARTUP_ON_ERROR,), flags, environment, None)
    except ConfigError:
        return True
    return bool(values[STARTUP_ON_ERROR.name] == "wait")


def stand_by_without_flags(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> int | None:
    """Stand by after invalid flags until a signal; return the exit code, ``None`` to
    exit at once.
    """
    # Only the flags that are needed here are read, so that the others may be invalid.
    parser = Parser(prog="", description="")
    add_flags(parser, (STARTUP_ON_ERROR, *WEB_OPTIONS, *_TAP_OPTIONS))
    try:
        flags = vars(parser.parse_known_args(list(arguments))[0])
    except SystemExit:
        return None
    if "--config.check" in arguments or not waits_on_error(flags, environment):
        return None

    def fail() -> None:
        raise ConfigError("the flags are invalid, see the line above")

    async def stand_by() -> None:
        with Shutdown.on_signals() as shutdown:
            await wait_for(fail, flags, environment, shutdown)

    asyncio.run(stand_by())
    return 0


async def listen(host: str, port: int, shutdown: Shutdown | None) -> Listener | None:
    """Return a listener; with `shutdown`, try every `RETRY_SECONDS` until then, else
    once.

    ``None`` if the address could not be bound. The first error is logged; without
    `shutdown`, it goes to stderr.
    """
    logged = False
    while True:
        try:
            return await Listener.open(host, port)
        except OSError as error:
            reason = (
                f'--web.listen-address "{format_address(host, port)}": cannot listen: '
                f"{error_text(error)}"
            )
        if shutdown is None:
            sys.stderr.write(f"vllm-specdec-exporter: error: {reason}\n")
            return None
        if not logged:
            logs.log(logging.ERROR, "cannot start, standing by", error=reason)
            logged = True
        await shutdown.unless_stopped(asyncio.sleep(RETRY_SECONDS))
        if shutdown.stop.is_set():
            return None


async def wait_for(
    prepare: Callable[[], Prepared],
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    shutdown: Shutdown,
) -> tuple[Prepared, Tap | None] | None:
    """Return the result of `prepare`; stand by while it raises `ConfigError`. ``None``
    after a signal.

    Meanwhile a tap relays if its own settings, from flags and environment, can be used;
    it is returned too.
    """
    prepared, error = await _attempt(prepare, shutdown)
    if error is None:
        return None if prepared is None else (prepared, None)
    # The settings of the log may be among the invalid ones.
    logs.set_up("logfmt", "info")
    reload = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.set)
    logged = ""
    async with _StandbyServer(flags, environment, shutdown) as server:
        while error is not None:
            await shutdown.unless_stopped(server.update())
            if error != logged:
                logged = error
                logs.log(logging.ERROR, "cannot start, standing by", error=error)
            reloading = asyncio.ensure_future(reload.wait())
            waiting = asyncio.wait([reloading], timeout=RETRY_SECONDS)
            await shutdown.unless_stopped(waiting)
            reloading.cancel()
            reload.clear()
            if shutdown.stop.is_set():
                logs.log(logging.INFO, "stopping")
                return None
            prepared, error = await _attempt(prepare, shutdown)
        return None if prepared is None else (prepared, server.take_tap())


async def _attempt(
    prepare: Callable[[], Prepared], shutdown: Shutdown
) -> tuple[Prepared | None, str | None]:
    """Return the result of `prepare`, ``None`` after a signal, or else its error."""
    try:
        return await shutdown.unless_stopped(in_daemon_thread(prepare)), None
    except ConfigError as error:
        return None, str(error)


class _StandbyServer:
    """Responds to probes and scrapes at the exporter's address, and runs its tap, if
    possible.
    """

    def __init__(
        self,
        flags: Mapping[str, Any],
        environment: Mapping[str, str],
        shutdown: Shutdown,
    ) -> None:
        self._flags = flags
        self._environment = environment
        self._shutdown = shutdown
        self._limiter = ConnectionLimiter()
        self._runner: web.AppRunner | None = None
        self._listener: Listener | None = None
        self._tap: Tap | None = None
        self._logged_tap_error = ""
        self._logged_error = ""

    async def __aenter__(self) -> Self:
        self._runner = await self._limiter.set_up(_app())
        return self

    async def __aexit__(self, *_: object) -> None:
        await end_tap(self._tap, self._shutdown.hurry)
        if self._listener is not None:
            self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def take_tap(self) -> Tap | None:
        """Return the tap, which keeps running after the standby."""
        tap = self._tap
        self._tap = None
        return tap

    async def update(self) -> None:
        """Start the tap and the listener if they do not run yet; an error is logged."""
        if self._tap is None:
            self._tap = await in_daemon_thread(self._make_tap)
            if self._tap is not None:
                self._tap.keep_trying()
        if self._listener is not None:
            return
        address, self._limiter.context = await in_daemon_thread(self._web_values)
        try:
            listener = await Listener.open(*address)
            listener.serve(self._limiter.accept)
            self._listener = listener
        except OSError as error:
            if self._logged_error != str(error):
                self._logged_error = str(error)
                logs.log(
                    logging.ERROR, "standing by without an answer", error=str(error)
                )

    def _make_tap(self) -> Tap | None:
        """Return the tap if its settings can be used.

        It relays, but observes nothing.
        """
        # The first reason is that of all settings, which the operator has set.
        reason = ""
        for flags, environment in self._sources():
            try:
                values = values_of(_TAP_OPTIONS, flags, environment, lambda: OPTIONS)
                upstream = build_upstream(values, timeout=1.0, discovery=True)
                tap = make_tap(build_tap(values, upstream.targets), upstream)
                if tap is not None:
                    return tap
            except ConfigError as error:
                reason = reason or str(error)
        is_set = self._flags.get(_TAP.name) or self._environment.get(_TAP.variable)
        if is_set and reason and reason != self._logged_tap_error:
            self._logged_tap_error = reason
            logs.log(logging.WARNING, "no tap while standing by", error=reason)
        return None

    def _web_values(self) -> tuple[tuple[str, int], ssl.SSLContext | None]:
        """Return address and TLS context from all settings, without the file, or the
        defaults.

        There is no TLS if the web configuration file cannot be used.
        """
        for flags, environment in self._sources():
            with contextlib.suppress(ConfigError):
                address, file = web_values(flags, environment, lambda: OPTIONS)
                context = None
                with contextlib.suppress(WebConfigFileError):
                    if file:
                        context = load_web_config(file)[1].context
                return address, context
        return parse_listen_address(str(LISTEN_ADDRESS.default)), None

    def _sources(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, str]]]:
        """Yield flags and environment, with and without the configuration file."""
        yield self._flags, self._environment
        without_file = dict(self._environment)
        without_file.pop(CONFIG_FILE_VARIABLE, None)
        # The file may be the invalid part.
        yield {**self._flags, "config_file": None}, without_file


def _app() -> web.Application:
    """Return the application.

    It exposes nothing of the configuration, so it needs no authentication.
    """
    app = web.Application()
    app.router.add_get(
        "/metrics", make_handler(_result, Texts(), process_metrics=False)
    )
    # Both probes succeed: a pod whose sidecar fails them gets no traffic, or is ended.
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
    return web.Response(
        text="standing by: the configuration cannot be used, see the log\n"
    )


async def _not_started(_request: web.Request) -> web.Response:
    text = (
        "The exporter has not started: its configuration cannot be used. Its log "
        "says why:\n"
        "kubectl logs POD -c specdec-exporter\n"
    )
    return web.Response(status=503, text=text)
