"""Whom the process contacts: the servers that it was told of, and nobody else, whatever
they say. It writes no file, and runs nothing.
"""

import json
from collections import defaultdict
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.commands import run, started
from support.exporter import running_exporter
from support.faulty_server import Behaviour, FaultyServer, capture, status
from support.faulty_server import answer as answered
from support.ports import free_port
from support.programs import answers, eventually

#: Run by Python as it starts: every connection, every datagram, every name that is
#: looked up, every process, every file that is opened to be written or removed, and the
#: token of a service account.
WITNESS = """
import json, os, sys

OUTWARD = {
    "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname",
    "subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn",
    "urllib.Request", "os.mkdir", "os.remove", "os.rename", "os.truncate",
}
FILE = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND)

def witness(event, words):
    if event == "socket.connect":
        words = words[1:]
    elif event == "open":
        name, _, flags = words
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if not (writes or "serviceaccount" in str(name)):
            return
    elif event not in OUTWARD:
        return
    os.write(FILE, (json.dumps([event, repr(words)]) + chr(10)).encode())

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
    return file, {
        "PYTHONPATH": str(tmp_path),
        "WITNESS": str(file),
        # What is installed is compiled already.
        "PYTHONDONTWRITEBYTECODE": "1",
        **proxies,
    }


def witnessed(file: Path) -> dict[str, set[str]]:
    """What was witnessed, by event; without lookups of the address itself."""
    seen = defaultdict[str, set[str]](set)
    for line in file.read_text().splitlines():
        event, arguments = json.loads(line)
        # The address goes through getaddrinfo too; no name does.
        if event != "socket.getaddrinfo" or "127.0.0.1" not in arguments:
            seen[event].add(arguments)
    return seen


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
        seen = witnessed(file)
    assert seen == {"socket.connect": {f"(('127.0.0.1', {port}),)"}}


def test_every_server_gets_the_credentials(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    with (
        FaultyServer(answered(capture())) as first,
        FaultyServer(answered(capture())) as second,
        running_exporter(
            *("--vllm.url", first.url, "--vllm.url", second.url),
            *("--vllm.bearer-token-file", str(token), "--vllm.header", "X-Key: k"),
        ),
    ):
        for server in (first, second):
            eventually(server.polls)
            # The exporter of another test may still poll a server whose port this is.
            sent = [request.headers for request in server.requests]
            assert ("Bearer secret", "k") in [
                (headers.get("authorization"), headers.get("x-key")) for headers in sent
            ]


#: Arguments of each command that connects, the server's address being URL. What they
#: are told there makes most of them end at once.
CONNECTING = {
    "check": "check URL --for 1s",
    "baseline": "baseline URL --interval 300ms --for 1s --out FOLDER/b.json",
    "compare": "compare URL URL/metrics?other --for 1s",
    "compare by Prometheus": "compare --prometheus.url URL --a 2h/1h --b 1h",
    "sweep": "sweep URL --max-tokens 1",
    "calibrate": "calibrate URL --method ngram",
    "history": "history URL",
    "check --exporter": "check --exporter URL",
    "health": "health --web.listen-address 127.0.0.1:PORT",
}


@pytest.mark.parametrize("words", CONNECTING.values(), ids=CONNECTING)
def test_a_command_contacts_whom_it_is_told_of(
    witness: tuple[Path, dict[str, str]], words: str
) -> None:
    file, environment = witness
    with FaultyServer(answered(capture())) as server:
        line = words.replace("URL", server.url).replace("PORT", str(server.port))
        line = line.replace("FOLDER", str(file.parent))
        outcome = run(*line.split(), **environment)
        assert server.requests, outcome
    seen = witnessed(file)["socket.connect"]
    assert seen == {f"(('127.0.0.1', {server.port}),)"}


@pytest.mark.parametrize(
    "words", ["dashboards", "plan --target-params 8B --gpu H100", "requests -"]
)
def test_a_command_that_contacts_nobody(
    witness: tuple[Path, dict[str, str]], words: str
) -> None:
    file, environment = witness
    outcome = run(*words.split(), **environment)
    assert outcome.out or outcome.err
    assert witnessed(file) == {}


@pytest.mark.parametrize("words", ["act", "simulate"])
def test_a_server_that_contacts_nobody(
    witness: tuple[Path, dict[str, str]], words: str
) -> None:
    file, environment = witness
    address = f"127.0.0.1:{free_port()}"
    listening = f"--web.listen-address={address}"
    with started(words, listening, **environment) as process:
        ready = "/-/ready" if words == "act" else "/metrics"
        eventually(lambda: answers(f"http://{address}{ready}"))
        process.terminate()
        process.communicate(timeout=20)
    assert not witnessed(file).keys() - {"open"}
