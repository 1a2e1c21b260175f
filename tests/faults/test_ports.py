"""Ports that somebody else has."""

import contextlib
import itertools
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from faults.rig import NO_SERVER, STEADY, assert_alive
from support.commands import run
from support.exporter import RunningExporter, request, running_exporter
from support.faulty_server import FaultyServer, replay
from support.ports import free_port
from support.programs import answers, eventually

pytestmark = pytest.mark.full

#: Longer than from one attempt to the next.
PATIENCE = 20.0


@contextlib.contextmanager
def _taken() -> Iterator[tuple[socket.socket, str]]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other, f"127.0.0.1:{other.getsockname()[1]}"


def _sidecar(address: str, *flags: str) -> contextlib.AbstractContextManager[RunningExporter]:
    """Run the exporter as a sidecar that need not listen yet."""
    return running_exporter("--startup.on-error=wait", "--web.listen-address", address, *STEADY, *flags)


@pytest.mark.parametrize(
    "flag",
    [
        pytest.param("--web.listen-address", id="taken_at_start"),
        pytest.param("--tap.listen-address", id="tap_taken"),
    ],
)
def test_taken(flag: str) -> None:
    with _taken() as (_, address):
        flags = {"--web.listen-address": "127.0.0.1:0", flag: address, "--vllm.url": "http://127.0.0.1:1"}
        done = run(*itertools.chain(*flags.items()))
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert f'{flag} "{address}": cannot listen: Address already in use' in done.err


def test_a_host_that_does_not_exist() -> None:
    """It is like a port that is taken: the reason is one that can be understood."""
    done = run("--web.listen-address", "no-such-host.invalid:9850", *NO_SERVER)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert '--web.listen-address "no-such-host.invalid:9850": cannot listen: ' in done.err
    assert "Unknown error" not in done.err


def test_taken_for_a_sidecar() -> None:
    with FaultyServer(replay()) as server, contextlib.ExitStack() as stack:
        other, address = stack.enter_context(_taken())
        exporter = stack.enter_context(_sidecar(address, "--vllm.url", server.url))
        [line] = eventually(lambda: exporter.log_lines("cannot start, standing by"))
        assert "Address already in use" in line["error"]
        exporter.send(signal.SIGHUP)  # does not end it
        time.sleep(0.3)
        assert exporter.process.poll() is None
        other.close()
        eventually(lambda: answers(f"{exporter.url}/config"), PATIENCE)
        exporter.wait_until_up()
        assert_alive(exporter)
        assert len(exporter.log_lines("cannot start, standing by")) == 1


def test_taken_until_sigterm() -> None:
    with _taken() as (_, address), _sidecar(address) as exporter:
        eventually(lambda: exporter.log_lines("cannot start, standing by"))
        code, seconds = exporter.terminate()
        assert code == 0
        assert seconds < 5.0


def test_tap_taken_for_a_sidecar() -> None:
    with FaultyServer(replay()) as server, contextlib.ExitStack() as stack:
        other, tap = stack.enter_context(_taken())
        address = f"127.0.0.1:{free_port()}"
        flags = ("--vllm.url", server.url, "--tap.listen-address", tap)
        exporter = stack.enter_context(_sidecar(address, *flags))
        eventually(lambda: answers(f"{exporter.url}/config"))
        exporter.wait_until_up()
        assert exporter.metrics().value("tap_listening") == 0
        assert_alive(exporter)
        other.close()
        exporter.wait_for(lambda m: m.value("tap_listening") == 1, within=PATIENCE)
        assert request(f"http://{tap}/metrics").status == 200  # vLLM's, through the tap
        assert exporter.log().count("tap cannot listen") == 1


def test_taken_by_itself() -> None:
    with running_exporter(*NO_SERVER) as first:
        assert run("--web.listen-address", first.address, *NO_SERVER).code == 1
        assert_alive(first)
