"""The ways to a server that the benchmark of the tap compares, each of them a real process."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bystanders import cpu_seconds
from processes import HERE, free_port, resident_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DIRECT, TAP, ASKING, NGINX, HAPROXY = "direct", "tap", "tap, asking for usage", "nginx", "HAProxy"

#: One process and one thread, as the tap is; streams pass on as they come; connections are kept.
_NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
worker_rlimit_nofile {files};
events {{ worker_connections {files}; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  keepalive_requests 1000000000; client_max_body_size 0;
  upstream server {{ server {server}; keepalive 2048; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location / {{
      proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 1h;
    }}
  }}
}}
"""
_HAPROXY = """
global
  nbthread 1
  maxconn {connections}
defaults
  mode http
  option http-no-delay
  timeout connect 10s
  timeout client 1h
  timeout server 1h
listen tap
  bind 127.0.0.1:{port} backlog 2048
  server server {server}
"""


@dataclass(frozen=True)
class Way:
    """A way to the server.

    Attributes:
        name: as the tables have it.
        address: where clients go.
        pid: of the process in between; the server's own for none.
        own: where the tap's own metrics are; empty for others.
    """

    name: str
    address: str
    pid: int
    own: str = ""

    @property
    def cpu_seconds(self) -> float:
        """Processor time that the process has used."""
        return cpu_seconds(self.pid)

    @property
    def resident_bytes(self) -> float:
        """Resident memory of the process."""
        return resident_bytes(self.pid)

    def load(self, **told: object) -> dict[str, Any]:
        """Return what clients report that are told this; see `tap_client`."""
        command = [sys.executable, str(HERE / "tap_client.py"), self.address, json.dumps(told)]
        found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        return found

    @contextlib.contextmanager
    def holding(self, clients: int) -> Iterator[None]:
        """Hold so many streams open, each with an event a second."""
        told = {"clients": clients, "hold": True, "settle": 1.0, "script": {"events": 100_000, "rate": 1}}
        command = [sys.executable, str(HERE / "tap_client.py"), self.address, json.dumps(told)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield
            process.communicate("\n")


@contextlib.contextmanager
def server() -> Iterator[Way]:
    """Run the scripted server; gives the direct way to it."""
    _many_files()
    command = [sys.executable, str(HERE / "tap_server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Way(DIRECT, f"127.0.0.1:{process.stdout.readline().strip()}", process.pid)
        finally:
            process.kill()


@contextlib.contextmanager
def tap(server: Way, metrics: str, name: str = TAP) -> Iterator[Way]:
    """Run the real exporter with its tap; it polls the server at the URL `metrics` too."""
    own = f"127.0.0.1:{free_port()}"
    flags = {
        "--vllm.url": metrics,
        "--tap.upstream": f"http://{server.address}",
        "--web.listen-address": own,
        "--tap.ask-for-usage": str(name == ASKING).lower(),
        "--log.level": "error",
    }
    words = [word for flag in flags.items() for word in flag]
    command = [sys.executable, "-m", "vllm_specdec_exporter", *words, "--tap.listen-address"]
    with _process(command, name, own=own) as way:
        yield way


@contextlib.contextmanager
def nginx(server: Way, folder: Path) -> Iterator[Way]:
    """Run nginx."""
    port, file = free_port(), folder / "nginx.conf"
    file.write_text(_NGINX.format(folder=folder, server=server.address, port=port, files=_many_files()))
    with _process([_program("nginx"), "-e", f"{folder}/nginx.log", "-c", str(file)], NGINX, port) as way:
        yield way


@contextlib.contextmanager
def haproxy(server: Way, folder: Path) -> Iterator[Way]:
    """Run HAProxy."""
    port, file = free_port(), folder / "haproxy.cfg"
    connections = (_many_files() - 100) // 2
    file.write_text(_HAPROXY.format(server=server.address, port=port, connections=connections))
    with _process([_program("haproxy"), "-q", "-db", "-f", str(file)], HAPROXY, port) as way:
        yield way


@contextlib.contextmanager
def _process(command: list[str], name: str, port: int = 0, own: str = "") -> Iterator[Way]:
    """Run a process until it listens at a port; without one, at a free port that is its last argument."""
    if not port:
        port = free_port()
        command = [*command, f"127.0.0.1:{port}"]
    with subprocess.Popen(command) as process:
        try:
            while True:
                assert process.poll() is None, f"{name} ended"
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            way = Way(name, f"127.0.0.1:{port}", process.pid, own)
            way.load(clients=4, requests=100, script={"events": 5, "rate": 1000})  # what is slow once is over
            yield way
        finally:
            process.terminate()


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    assert found, f"{name} is missing: apt-get install {name}"
    return found


def _many_files() -> int:
    """Let processes open as many files as they may, and return how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(most, 1 << 16)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
