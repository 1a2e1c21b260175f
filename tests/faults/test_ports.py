"""Ports that somebody else has."""

import contextlib
import itertools
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from faults.rig import STEADY, assert_alive
from support.commands import run
from support.exporter import NO_SERVER, running_exporter
from support.faulty_server import FaultyServer, replay
from support.programs import answers, eventually

pytestmark = pytest.mark.full

#: Longer than from one attempt to the next.
PATIENCE = 20.0


@contextlib.contextmanager
def _taken() -> Iterator[tuple[socket.socket, str]]:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder, f"127.0.0.1:{holder.getsockname()[1]}"


@pytest.mark.parametrize(
    "flag",
    [
        pytest.param("--web.listen-address", id="taken_at_start"),
        pytest.param("--tap.listen-address", id="tap_taken"),
    ],
)
def test_taken(flag: str) -> None:
    with _taken() as (_, address):
        flags = {
            "--web.listen-address": "127.0.0.1:0",
            flag: address,
            "--vllm.url": "http://127.0.0.1:1",
        }
        done = run(*itertools.chain(*flags.items()))
    assert done.code == 1
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert f'{flag} "{address}": cannot listen: Address already in use' in done.err


def test_a_host_that_does_not_exist() -> None:
    """It is like a port that is taken: the reason is one that can be understood."""
    done = run("--web.listen-address", "no-such-host.invalid:9850", *NO_SERVER)
    assert done.code == 1
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert (
        '--web.listen-address "no-such-host.invalid:9850": cannot listen: ' in done.err
    )
    assert "Unknown error" not in done.err


def test_taken_for_a_sidecar() -> None:
    with FaultyServer(replay()) as server, contextlib.ExitStack() as stack:
        holder, address = stack.enter_context(_taken())
        listening = ("--startup.on-error=wait", "--web.listen-address", address)
        exporter = stack.enter_context(
            running_exporter(*listening, *STEADY, "--vllm.url", server.url)
        )
        [line] = eventually(lambda: exporter.log_lines("cannot start, standing by"))
        assert "Address already in use" in line["error"]
        exporter.send(signal.SIGHUP)  # does not end it
        time.sleep(0.3)
        assert exporter.process.poll() is None
        holder.close()
        eventually(lambda: answers(f"{exporter.url}/config"), PATIENCE)
        exporter.wait_until_up()
        assert_alive(exporter)
        assert len(exporter.log_lines("cannot start, standing by")) == 1
