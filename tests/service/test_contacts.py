"""Whom the process contacts: the servers that it was told of, and nobody else, whatever
they say.
"""

import json
from collections import defaultdict
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.exporter import running_exporter
from support.faulty_server import Behaviour, FaultyServer, capture, status
from support.faulty_server import answer as answered
from support.programs import eventually

#: Run by Python as it starts: every connection, every datagram, every name that is
#: looked up, every process.
WITNESS = """
import json, os, sys

OUTWARD = {
    "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname",
    "subprocess.Popen", "os.system", "os.exec", "urllib.Request",
}

def witness(event, words):
    if event == "socket.connect":
        words = words[1:]
    elif event not in OUTWARD:
        return
    with open(os.environ["WITNESS"], "a") as file:
        print(json.dumps([event, repr(words)]), file=file)

sys.addaudithook(witness)
"""


@pytest.fixture
def witness(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The file with what was witnessed, and the environment that has it written."""
    (tmp_path / "sitecustomize.py").write_text(WITNESS)
    file = tmp_path / "witnessed"
    file.touch()
    proxy = "http://127.0.0.1:3"
    proxies = dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), proxy
    )
    return file, {"PYTHONPATH": str(tmp_path), "WITNESS": str(file), **proxies}


@pytest.mark.parametrize(
    "behaviour",
    [
        answered(capture()),
        status("302 Found", Location="http://127.0.0.1:4/metrics"),
    ],
    ids=["metrics", "redirect"],
)
def test_the_server_alone(
    witness: tuple[Path, dict[str, str]], behaviour: Behaviour
) -> None:
    """Its answers, a redirect, proxies of the environment and every endpoint make it
    contact nobody else.
    """
    file, environment = witness
    with (
        FaultyServer(behaviour) as server,
        running_exporter("--vllm.url", server.url, env=environment) as exporter,
    ):
        eventually(lambda: len(server.requests) >= 3)
        for path in (
            "/",
            "/metrics",
            "/api/v1/snapshot",
            "/config",
            "/-/healthy",
            "/-/ready",
            "/nothing",
        ):
            exporter.get(path)
        exporter.post("/-/reload")
        eventually(lambda: len(server.requests) >= 6)
        port = urlsplit(server.url).port
        witnessed = defaultdict[str, set[str]](set)
        for line in file.read_text().splitlines():
            event, arguments = json.loads(line)
            witnessed[event].add(arguments)
    assert witnessed.pop("socket.connect") == {f"(('127.0.0.1', {port}),)"}
    # The address goes through getaddrinfo too; no name does.
    looked_up = witnessed.pop("socket.getaddrinfo", set())
    assert {
        arguments for arguments in looked_up if "127.0.0.1" not in arguments
    } == set()
    assert witnessed == {}
