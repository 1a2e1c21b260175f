"""Files that hang, and clients that have gone: the process goes on, and SIGTERM ends
it.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from faults.rig import STEADY, Surroundings, assert_alive, connect
from support.certificates import Authority, server_side
from support.commands import started
from support.exporter import NO_SERVER, RunningExporter, running_exporter
from support.faulty_server import FaultyServer, raw, replay
from support.ports import free_port
from support.programs import eventually
from tap.streams import ASKED

pytestmark = pytest.mark.full


def assert_ends(exporter: RunningExporter) -> None:
    """SIGTERM ends it within two seconds, on a machine that has no other work."""
    code, took = exporter.terminate()
    assert code == 0
    assert took < 2.0 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert "Traceback" not in exporter.log()


@pytest.fixture
def surroundings(tmp_path: Path) -> Surroundings:
    (tmp_path / "surroundings").mkdir()
    return Surroundings(tmp_path / "surroundings")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "trusted")


@pytest.mark.parametrize("hanging", ["config.file", "vllm.ca-file"])
def test_files_that_hang(
    surroundings: Surroundings, authority: Authority, hanging: str
) -> None:
    """Probes, scrapes, polls and the tap go on with what was read before."""
    port = free_port()
    [cert, key] = authority.issue("127.0.0.1")
    with FaultyServer(replay(), tls=server_side((cert, key))) as server:
        flags = (
            f"--vllm.ca-file={authority.file}",
            f"--tap.listen-address=127.0.0.1:{port}",
        )
        settings = {"vllm": {"url": server.url}}
        with running_exporter(
            *flags, *STEADY, config=settings, env=surroundings.env
        ) as exporter:
            exporter.wait_until_up()
            files = {"config.file": exporter.config_file}
            surroundings.hang(files.get(hanging, authority.file))
            exporter.send(signal.SIGHUP)
            polls = exporter.metrics().total("last_success_timestamp_seconds")
            with connect(f"http://127.0.0.1:{port}") as client:
                client.sendall(ASKED)
                assert client.recv(13) == b"HTTP/1.1 200 "
            assert surroundings.hangs
            exporter.wait_for(
                lambda m: m.total("last_success_timestamp_seconds") > polls + 1
            )
            assert_alive(exporter)
            assert_ends(exporter)


def test_a_token_file_that_hangs(tmp_path: Path) -> None:
    """Polls fail and pushes are refused, each with the reason, and no thread is left
    behind for each.
    """
    token = tmp_path / "token"
    token.write_text("token")
    with FaultyServer(replay()) as server:
        flags = (
            f"--vllm.url={server.url}",
            f"--vllm.bearer-token-file={token}",
            f"--push.bearer-token-file={token}",
        )
        with running_exporter(*flags) as exporter:
            exporter.wait_until_up()
            token.unlink()
            os.mkfifo(token)  # opening it hangs until there is a writer
            exporter.wait_for(lambda m: m.total("poll_errors_total") >= 6)
            assert_alive(exporter)
            threads = list(Path(f"/proc/{exporter.pid}/task").iterdir())
            assert len(threads) < 8, "a thread for each try"
            pushed = exporter.post("/api/v1/requests")
            assert pushed.status == 503
            assert "was not read within" in pushed.text
            assert_ends(exporter)


@pytest.mark.parametrize("on_error", ["exit", "wait"])
def test_a_configuration_that_hangs_at_the_start(
    surroundings: Surroundings, tmp_path: Path, on_error: str
) -> None:
    file = tmp_path / "config.yml"
    file.write_text("vllm: {url: http://127.0.0.1:1}\n")
    surroundings.hang(file)
    flags = ("--config.file", str(file), f"--startup.on-error={on_error}")
    with started(*flags, **surroundings.env) as process:
        eventually(lambda: surroundings.hangs)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=20)
    assert process.returncode == 0
    assert stderr == ""


def test_clients_that_have_gone_do_not_delay_the_end() -> None:
    """A client closed its connection, and what the server sent after that was answered
    with a reset.
    """
    tap = f"127.0.0.1:{free_port()}"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with FaultyServer(raw(head, 1.0, b"1\r\na\r\n", 3600.0)) as server:
        flags = (*NO_SERVER, "--tap.listen-address", tap, "--tap.upstream", server.url)
        with running_exporter(*flags) as exporter:
            with connect(f"http://{tap}") as client:
                client.sendall(b"GET /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n")
                assert client.recv(1000) == head
            time.sleep(2)
            assert exporter.metrics().value("tap_open_connections") == 1
            assert_ends(exporter)
