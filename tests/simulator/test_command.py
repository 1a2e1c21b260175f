import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ports import free_port
from vllm_specdec_exporter.simulator import add_arguments, run

PROGRAM = """
import argparse, sys
from vllm_specdec_exporter.simulator import add_arguments, run
parser = argparse.ArgumentParser()
add_arguments(parser)
sys.exit(run(parser.parse_args()))
"""
PACKAGE = Path(sys.modules["vllm_specdec_exporter"].__file__ or "").parent.parent


def parse(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(flags)


@contextlib.contextmanager
def simulator(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command; yield the process and the server's address once it answers."""
    url = f"http://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--web.listen-address", url[len("http://") :], *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )
    try:
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                get(url + "/health")
                break
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process, url
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return bytes(answer.read())


def is_open(url: str) -> bool:
    try:
        get(url + "/health")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_quietly_and_stops_at_once(number: signal.Signals) -> None:
    flags = ("--engines", "2", "--models", "a", "--models", "b", "--num-speculative-tokens", "3")
    with simulator(*flags, "--method", "mtp", "--seed", "1", "--speed", "10") as (process, url):
        time.sleep(0.5)
        body = get(url + "/metrics").decode()
        status = json.loads(get(url + "/simulator"))
        began = time.monotonic()
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
        assert time.monotonic() - began < 30
    assert process.returncode == 0
    assert output == ""
    lines = errors.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("simulate: phase healthy for 120 s")
    assert lines[1].startswith(f"simulate: serving {url}/metrics (dialect vllm, 2 model(s)")
    assert 'vllm:spec_decode_num_drafts_total{engine="1",model_name="b"}' in body
    assert status["method"] == "mtp"
    assert status["scenario"] == "tour"
    assert status["elapsed_seconds"] > 3


def test_it_stops_while_the_port_is_closed(tmp_path: Path) -> None:
    scenario = tmp_path / "down.yaml"
    scenario.write_text(
        "phases: [{phase: healthy, seconds: 1}, {phase: restart, seconds: 99, downtime_seconds: 99}]"
    )
    with simulator("--scenario.file", str(scenario)) as (process, url):
        deadline = time.monotonic() + 10
        while is_open(url):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.terminate()
        assert process.wait(timeout=2) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--scenario", "none"), "simulate: unknown scenario 'none'; the scenarios are tour, "),
        (("--scenario.file", "/nowhere.yaml"), "simulate: /nowhere.yaml: No such file or dir"),
    ],
)
def test_a_faulty_scenario_ends_with_status_2(
    flags: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(parse(*flags)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--engines", "0"), "'0' is not a whole number of at least 1"),
        (("--engines", "x"), "'x' is not a whole number of at least 0"),
        (("--num-speculative-tokens", "-1"), "'-1' is not a whole number of at least 0"),
        (("--speed", "0"), "'0' is not a number above 0"),
        (("--speed", "fast"), "'fast' is not a number above 0"),
        (("--speed", "inf"), "'inf' is not a number above 0"),
        (("--web.listen-address", "8000"), "'8000' is not HOST:PORT"),
        (("--web.listen-address", "a:70000"), "'a:70000' is not HOST:PORT"),
        (("--dialect", "x"), "invalid choice: 'x'"),
        (("--scenario", "idle", "--scenario.file", "x"), "not allowed with argument"),
    ],
)
def test_faulty_flags_end_with_status_2(
    flags: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        parse(*flags)
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_defaults() -> None:
    args = parse()
    assert args.listen_address == ("127.0.0.1", 8000)
    assert args.scenario == "tour"
    assert args.loop is None
    assert parse("--no-loop").loop is False
    assert parse("--web.listen-address", "[::1]:80").listen_address == ("::1", 80)
    assert parse("--web.listen-address", ":80").listen_address == ("", 80)


def test_a_taken_port_ends_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(parse("--web.listen-address", f"127.0.0.1:{port}")) == 1
    assert capsys.readouterr().err.startswith(f"simulate: cannot listen on 127.0.0.1:{port}: ")
