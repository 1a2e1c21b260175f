"""What goes wrong around the web configuration: descriptors, memory, devices, floods, panics."""

import asyncio
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from support.builders import refusal
from vllm_specdec_exporter.observe.result import Reload
from vllm_specdec_exporter.serve.connection_limits import ConnectionLimiter
from vllm_specdec_exporter.serve.sockets import Listener
from vllm_specdec_exporter.serve.web_config import fields
from vllm_specdec_exporter.serve.web_config import middleware as guard_module
from vllm_specdec_exporter.serve.web_config.document import WebConfig, WebConfigFile, parse
from vllm_specdec_exporter.serve.web_config.fields import WebConfigError
from vllm_specdec_exporter.serve.web_config.middleware import WebConfigMiddleware
from webconfig.https import MUTUAL, TLS, write
from webconfig.pki import Pki, hashed


class TestFollowing:
    @pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), MemoryError()])
    async def test_a_round_that_fails(
        self, pki: Pki, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
    ) -> None:
        """It changes nothing, is told once, and the next second tries again."""
        monkeypatch.setattr(guard_module, "LOOK_SECONDS", 0.02)
        caplog.set_level("INFO", "vllm_specdec_exporter")
        path = write(pki.folder / "web.yml", {"basic_auth_users": {"alice": hashed("one")}})
        told: list[Reload] = []
        source = WebConfigFile(str(path))
        guard = WebConfigMiddleware(source, source.load(), told.append)
        app = web.Application()
        guard.attach(app)
        admission = ConnectionLimiter()
        runner = await admission.set_up(app)
        listener = await Listener.open("127.0.0.1", 0)
        await guard.start(listener, admission)
        serve, failures = listener.serve, [0]

        def fails(*_args: Any) -> None:
            failures[0] += 1
            raise error

        async def status() -> int:
            reader, writer = await asyncio.open_connection(*listener.addresses[0].split(":"))
            writer.write(b"GET /nothing HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return int(answer.split()[1]) if answer.startswith(b"HTTP") else 0

        def lines() -> list[str]:
            return [record.getMessage() for record in caplog.records]

        try:
            monkeypatch.setattr(listener, "serve", fails)
            # It opens the doors, were half of it taken.
            write(path, {"tls_server_config": TLS, "basic_auth_users": {}})
            await _until(lambda: failures[0] >= 3)
            assert told[-1].successful is False
            assert lines().count("web configuration not reloaded") == 1
            assert await status() == 401
            monkeypatch.setattr(listener, "serve", serve)
            await _until(lambda: told[-1].successful)
            assert lines()[-1] == "web configuration reloaded"
            assert await status() == 0
        finally:
            await guard.stop()
            listener.close()
            await runner.cleanup()


async def _until(condition: Callable[[], bool], within: float = 30.0) -> None:
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - of what is tested, no event is told
            await asyncio.sleep(0.01)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class TestFiles:
    def test_no_certificates(self, pki: Pki) -> None:
        """A device without an end, a pipe without a writer, a disk image: one line names the file, soon."""
        pipe, large = pki.folder / "pipe", write(pki.folder / "large", "x")
        os.mkfifo(pipe)
        os.truncate(large, 5 << 20)
        begin, odd = time.monotonic(), "not a regular file"
        for key in ("cert_file", "key_file", "client_ca_file"):
            for path, reason in (("/dev/zero", odd), (str(pipe), odd), (str(large), "larger than 4 MiB")):
                document = {"tls_server_config": {**MUTUAL, key: path}}
                source = WebConfigFile(str(write(pki.folder / "web.yml", document)))
                told = f'tls_server_config.{key}: "{path}": {reason}'
                assert refusal(WebConfigError, source.load) == told
        assert time.monotonic() - begin < 60

    def test_folders_are_closed(self, pki: Pki) -> None:
        """What cannot be read is asked every second: nothing stays open."""
        tls = {**TLS, "cert_file": ".", "key_file": "/dev/null"}
        source = WebConfigFile(str(write(pki.folder / "web.yml", {"tls_server_config": tls})))
        before = _descriptors()
        for _ in range(20):
            source.look()

        assert _descriptors() == before

    def test_null(self) -> None:
        """Nothing, in any of YAML's words, is the same as left out; in quotes, or as a name, it is a word."""
        for null in ("~", "null", "Null", "NULL", ""):
            text = f"tls_server_config: {null}\nhttp_server_config: {null}\nbasic_auth_users: {null}\n"
            assert parse(fields.parse_yaml(text.encode())) == WebConfig()
            assert parse(fields.parse_yaml(null.encode())) == WebConfig()
        with pytest.raises(WebConfigError, match=r"^tls_server_config: settings are expected"):
            parse(fields.parse_yaml(b"tls_server_config: '~'"))
        # A list of names that was emptied is no leave for everybody.
        emptied = b"cert_file: a, key_file: b, client_ca_file: c, client_allowed_sans: ~"
        with pytest.raises(WebConfigError, match="client_allowed_sans: empty"):
            parse(
                fields.parse_yaml(
                    b"tls_server_config: {%b, client_auth_type: RequireAndVerifyClientCert}" % emptied
                )
            )
        one = hashed("x")
        assert parse(fields.parse_yaml(f"basic_auth_users: {{null: {one}}}".encode())).users == (
            ("null", one),
        )
