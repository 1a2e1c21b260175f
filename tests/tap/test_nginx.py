"""A real nginx ends TLS before the tap, with the settings that docs/requests.md has."""

import asyncio
import os
import re
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.certificates import Authority
from support.ports import free_port
from support.repository import text_of
from tap.ends import HOST, PATIENCE, End, serving
from tap.streams import CHAT, DONE, RECORD, chat_documents, events, usage_chunk
from tap.test_tls import _service

pytestmark = pytest.mark.full

_PROGRAM = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
#: In one process, and nothing outside of the folder.
_CONFIG = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/log;
events {{ }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    {listen}; ssl_certificate {certificate}; ssl_certificate_key {key};
    location / {{ {settings} }}
  }}
}}
"""


def _documented(port: int, tap: int) -> tuple[str, str]:
    """Return what the page sets for the server, and for its location."""
    page = text_of("docs/requests.md")
    (directives,) = re.findall(r"(?m)^- \*\*nginx\*\* (.*)$", page)
    listen, *settings = re.findall(r"`([^`]+)`", directives)
    assert listen == "listen 8443 ssl"
    assert settings[0] == "proxy_pass http://127.0.0.1:9852"
    settings[0] = settings[0].replace("9852", str(tap))
    return f"listen {HOST}:{port} ssl", "".join(f"{setting};" for setting in settings)


@asynccontextmanager
async def _nginx(folder: Path, tap: int, authority: Authority) -> AsyncIterator[End]:
    """Run nginx before a tap; yields a client that speaks TLS with it."""
    if _PROGRAM is None:
        pytest.skip("nginx is not installed")
    port = free_port()
    listen, settings = _documented(port, tap)
    certificate, key = authority.issue(HOST)
    config = folder / "nginx.conf"
    config.write_text(
        _CONFIG.format(
            folder=folder,
            listen=listen,
            settings=settings,
            certificate=certificate,
            key=key,
        )
    )
    program = await asyncio.create_subprocess_exec(
        _PROGRAM, "-c", config, "-e", folder / "log"
    )
    context = ssl.create_default_context(cafile=authority.file)
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    client = End(
                        *await asyncio.open_connection(HOST, port, ssl=context)
                    )
                    break
                except ConnectionRefusedError:
                    assert program.returncode is None, (folder / "log").read_text()
                    await asyncio.sleep(0.05)
        yield client
        await client.close()
    finally:
        program.terminate()
        await program.wait()


async def test_a_stream_passes_as_it_comes_and_is_observed(tmp_path: Path) -> None:
    """Each event is at the client before the next is sent; the request's body is larger
    than nginx takes by default.
    """
    authority = Authority(tmp_path, "trusted")
    body = b"{" + b" " * 2_000_000 + b'"stream":true}'
    sent = events([*chat_documents(), usage_chunk(record=RECORD), DONE])
    async with (
        serving() as upstream,
        _service(upstream.url) as (_, port, observed),
        _nginx(tmp_path, port, authority) as client,
    ):
        head = (
            f"POST {CHAT} HTTP/1.1\r\nhost: vllm\r\ncontent-type: application/json\r\n"
        )
        await client.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        server = await upstream.connection()
        await server.read_head()
        assert await server.read(len(body)) == body
        await server.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        await client.read_head()
        for event in sent:
            await server.send(b"%x\r\n%b\r\n" % (len(event), event))
            async with asyncio.timeout(PATIENCE):
                assert await client.reader.readuntil(event)
        await server.send(b"0\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            assert await client.reader.readuntil(b"0\r\n\r\n")
    [observation] = observed
    assert observation.record.accepted_tokens == RECORD["num_accepted_draft_tokens"]
