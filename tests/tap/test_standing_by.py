"""A tap whose own certificates cannot be used, and taps that end or change while the process stands by."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from support.certificates import Authority, server_side
from support.programs import COMMAND, clean_environment
from tap.ends import HOST, PATIENCE, connect, serving
from tap.process import both, connected, process
from tap.streams import (
    ANSWERED_PLAIN,
    ASKED_PLAIN,
    BEGUN,
)

if TYPE_CHECKING:
    from pathlib import Path

_WAIT = "--startup.on-error=wait"


@pytest.mark.parametrize("what", ["certificate", "trust"])
def test_a_check_finds_files_of_the_tap_that_hold_nothing_usable(what: str, tmp_path: Path) -> None:
    """Before the sidecar is rolled out, not after."""
    file = tmp_path / "file.pem"
    file.write_text("nothing")
    flags = {
        "certificate": [f"--tap.cert-file={file}", f"--tap.key-file={file}"],
        "trust": ["--tap.upstream=https://vllm:8000", f"--vllm.ca-file={file}"],
    }[what]
    words = [COMMAND, "--config.check", f"--tap.listen-address={HOST}:0", *flags]
    found = subprocess.run(words, capture_output=True, text=True, env=clean_environment(), timeout=PATIENCE)
    assert found.returncode == 2
    (line,) = found.stderr.splitlines()
    assert str(file) in line


async def test_certificates_that_cannot_be_used_do_not_end_it(tmp_path: Path) -> None:
    """It stands by, and relays once they can be."""
    authority = Authority(tmp_path, "authority")
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    cert.write_text("nothing")
    key.write_text("nothing")
    flags = (_WAIT, f"--tap.cert-file={cert}", f"--tap.key-file={key}")
    async with serving() as upstream, process(*flags, upstream=upstream.url) as running:
        await running.says("standing by")
        assert "--tap.cert-file" in running.exporter.log()
        for source, target in zip(authority.issue(HOST), (cert, key), strict=True):
            shutil.copy(source, target)
        running.send(signal.SIGHUP)
        await running.starts()
        await running.listens()


async def test_trust_that_changes_while_it_stands_by(tmp_path: Path) -> None:
    """The tap goes on with what the mended configuration says of trust."""
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    config = "vllm: {ca_file: '%s'}\nrequests: {window: %s}\n"
    async with (
        serving(tls=server_side(ours.issue(HOST))) as upstream,
        process(_WAIT, upstream=upstream.url, config=config % (other.file, "soon")) as running,
    ):
        await running.listens()
        client = await connect(running.port)
        await client.send(ASKED_PLAIN)
        assert (await client.rest())[0].startswith(b"HTTP/1.1 502 ")
        await client.close()
        running.exporter.configure(config % (ours.file, "1h"))
        running.send(signal.SIGHUP)
        await running.starts()
        client = await connected(running)
        await client.send(ASKED_PLAIN)
        server = await upstream.connection()
        await server.send(ANSWERED_PLAIN)
        assert await client.read(len(ANSWERED_PLAIN)) == ANSWERED_PLAIN
        await client.close()


async def test_a_second_sigterm_ends_it_at_once_while_it_stands_by() -> None:
    async with serving() as upstream, process(_WAIT, "--spec.config={", upstream=upstream.url) as running:
        await running.listens()
        stream, server = await both(running, upstream, ASKED_PLAIN)
        await server.send(BEGUN)
        assert await stream.read(len(BEGUN)) == BEGUN
        running.send(signal.SIGTERM)
        await running.says("stopping")
        running.send(signal.SIGTERM)
        async with asyncio.timeout(15):  # the time to drain is 25 s
            assert (await stream.rest())[0] == b""
        assert await running.exit_code() == 0
        await stream.close()
