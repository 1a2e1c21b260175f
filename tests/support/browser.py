"""A real browser for tests: headless Chromium, driven by its DevTools protocol over one
websocket.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import aiohttp

from support.repository import Json

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-features=Translate,OptimizationHints,MediaRouter",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)
_START_SECONDS = 60.0
_CALL_SECONDS = 30.0


class BrowserError(RuntimeError):
    """There is no browser, or it did not do what it was told."""


def find_browser() -> str:
    """Return the path of Chromium."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    msg = (
        f"no browser ({', '.join(_NAMES)}) found: install the Debian package 'chromium'"
    )
    raise BrowserError(msg)


class Browser:
    """A browser with an empty profile of its own, gone with the context."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._pages: dict[str, Page] = {}
        self._stack = contextlib.AsyncExitStack()
        self._gone = False

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            profile = Path(
                stack.enter_context(
                    # The browser's last helpers may still write while it goes away.
                    tempfile.TemporaryDirectory(
                        prefix="browser-", ignore_cleanup_errors=True
                    )
                )
            )
            address = await self._start(stack, profile)
            session = await stack.enter_async_context(aiohttp.ClientSession())
            # A screenshot is one large message.
            self._socket = await session.ws_connect(address, max_msg_size=0)
            stack.push_async_callback(self._socket.close)
            reader = asyncio.create_task(self._read())
            stack.push_async_callback(_cancelled, reader)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @contextlib.asynccontextmanager
    async def page(
        self, width: int = 1280, height: int = 900, *, dark: bool = False
    ) -> AsyncIterator[Page]:
        """Open an empty page of this size; its cookies and cache are its own."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = await self.call(
            "Target.createTarget", url="about:blank", browserContextId=context
        )
        attached = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        page = Page(self, attached["sessionId"])
        self._pages[attached["sessionId"]] = page
        try:
            for domain in ("Page", "Runtime", "Network", "Log"):
                await page.call(f"{domain}.enable")
            await page.emulate(width, height, dark=dark)
            yield page
        finally:
            del self._pages[attached["sessionId"]]
            await self.call("Target.disposeBrowserContext", browserContextId=context)

    async def call(self, method: str, session: str = "", **parameters: object) -> Json:
        """Call a method of the protocol and return its result."""
        if self._gone:
            raise BrowserError(f"{method}: the browser went away")
        number = next(self._ids)
        message: dict[str, object] = {
            "id": number,
            "method": method,
            "params": parameters,
        }
        if session:
            message["sessionId"] = session
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(message)
        try:
            # Not asyncio.wait_for(): before Python 3.12 it loses a cancellation that
            # comes with the answer.
            async with asyncio.timeout(_CALL_SECONDS):
                result = await answer
        except TimeoutError as error:
            raise BrowserError(f"{method}: no answer from the browser") from error
        finally:
            del self._answers[number]
        if "error" in result:
            raise BrowserError(f"{method}: {result['error'].get('message')}")
        return result["result"]

    async def _start(self, stack: contextlib.AsyncExitStack, profile: Path) -> str:
        """Start the browser and return the address of its websocket."""
        log = stack.enter_context((profile / "browser.log").open("wb"))
        process = await asyncio.create_subprocess_exec(
            find_browser(),
            *_FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # What it leaves behind goes with the profile.
            env={**os.environ, "TMPDIR": str(profile)},
            # A group of its own, so that its helpers can be ended with it.
            start_new_session=True,
        )
        stack.push_async_callback(_ended, process)
        ready = profile / "DevToolsActivePort"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                while process.returncode is None:
                    lines = ready.read_text().splitlines() if ready.exists() else []
                    if len(lines) > 1:
                        return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
                    await asyncio.sleep(0.05)
        said = (profile / "browser.log").read_text(errors="replace")[-2000:]
        raise BrowserError(f"the browser did not start: {said}")

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                self._dispatch(message.json())
        finally:
            # Nothing will be heard any more: whoever still waits must not wait for the
            # timeout.
            self._gone = True
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_result({"error": {"message": "the browser went away"}})

    def _dispatch(self, content: Json) -> None:
        if "method" in content:
            if page := self._pages.get(content.get("sessionId", "")):
                page.heard(content["method"], content["params"])
            return
        # The caller may have given up meanwhile.
        answer = self._answers.get(content["id"])
        if answer is not None and not answer.done():
            answer.set_result(content)


class Page:
    """One page of a browser.

    Attributes:
        errors: what the page or the browser complained about: exceptions, console
            errors, refused content.
        requests: the address of everything that the page asked for, but for ``data:``.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self._loaded = asyncio.Event()
        self.errors: list[str] = []
        self.requests: list[str] = []

    async def call(self, method: str, **parameters: object) -> Json:
        """Call a method of the protocol on this page."""
        return await self._browser.call(method, self._session, **parameters)

    async def open(self, url: str) -> None:
        """Go to `url` and wait until it has loaded."""
        self._loaded.clear()
        result = await self.call("Page.navigate", url=url)
        if result.get("errorText"):
            raise BrowserError(f"{url}: {result['errorText']}")
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await self._loaded.wait()
        except TimeoutError as error:
            raise BrowserError(
                f"{url}: not loaded within {_CALL_SECONDS:g} s"
            ) from error

    async def emulate(
        self, width: int, height: int = 900, *, dark: bool = False
    ) -> None:
        """Set the size of the window and the preferred colour scheme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def evaluate(self, expression: str) -> Any:
        """Return the JSON value of a JavaScript expression; promises are awaited."""
        result = await self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise BrowserError(
                details.get("exception", {}).get("description", details["text"])
            )
        return result["result"].get("value")

    async def wait_for(self, expression: str, seconds: float = 15.0) -> None:
        """Wait until a JavaScript expression is true; the page may reload meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    # While a page is being replaced there is nothing to ask.
                    with contextlib.suppress(BrowserError):
                        if await self.evaluate(expression):
                            return
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            raise BrowserError(
                f"not true within {seconds:g} s: {expression}"
            ) from error

    async def screenshot(self, path: Path, *, full: bool = True) -> None:
        """Save a picture as PNG, by default of the whole page rather than of what the
        window shows.
        """
        more: dict[str, object] = {}
        if full:
            size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
            clip = {
                "x": 0,
                "y": 0,
                "width": size["width"],
                "height": size["height"],
                "scale": 1,
            }
            more = {"captureBeyondViewport": True, "clip": clip}
        result = await self.call("Page.captureScreenshot", format="png", **more)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(result["data"]))

    def heard(self, method: str, event: Json) -> None:
        """Take note of an event that the browser reported."""
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent" if not event["request"]["url"].startswith(
                "data:"
            ):
                self.requests.append(event["request"]["url"])
            case "Runtime.exceptionThrown":
                self.errors.append(event["exceptionDetails"]["text"])
            case "Runtime.consoleAPICalled" if event["type"] in (
                "error",
                "assert",
                "warning",
            ):
                self.errors.append(
                    " ".join(str(a.get("value", a)) for a in event["args"])
                )
            case "Log.entryAdded" if event["entry"]["level"] in ("error", "warning"):
                self.errors.append(event["entry"]["text"])


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
