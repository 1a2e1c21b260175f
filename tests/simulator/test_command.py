"""`simulate`: it serves until it is told to stop, and refuses what it cannot do in one line."""

import argparse
import json
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from support.ports import free_port
from support.programs import COMMAND, answers, clean_environment, eventually
from vllm_specdec_exporter.commands.simulate import add_arguments, run


def parse(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(flags)


def get(url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, body, timeout=100) as answer:
        return bytes(answer.read())


@pytest.mark.parametrize(("number", "closed"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_it_serves_quietly_and_stops_when_told_even_while_the_port_is_closed(
    number: signal.Signals, closed: bool, tmp_path: Path
) -> None:
    scenario = tmp_path / "steady.yaml"
    scenario.write_text("phases: [{phase: healthy, seconds: 300}]")
    address = f"127.0.0.1:{free_port()}"
    url = f"http://{address}"
    flags = "--engines 2 --model a --num-speculative-tokens 3 --seed 1 --speed 10"
    process = subprocess.Popen(
        [
            *(COMMAND, "simulate", "--web.listen-address", address, "--scenario.file", str(scenario)),
            *flags.split(),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    try:
        eventually(lambda: answers(f"{url}/health"))
        eventually(lambda: json.loads(get(f"{url}/simulator"))["elapsed_seconds"] > 3)
        status, body = json.loads(get(f"{url}/simulator")), get(f"{url}/metrics").decode()
        if closed:
            get(f"{url}/simulator/phase", b'{"phase": "restart", "downtime_seconds": 99999}')
            eventually(lambda: not answers(f"{url}/health"))
        process.send_signal(number)
        output, errors = process.communicate(timeout=100)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert (process.returncode, output) == (0, "")
    assert errors == f"simulate: serving {url}/metrics (scenario steady)\n"
    assert 'vllm:spec_decode_num_drafts_total{engine="1",model_name="a"}' in body
    assert (status["scenario"], status["num_speculative_tokens"]) == ("steady", 3)


def test_a_taken_port_ends_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(parse("--web.listen-address", f"127.0.0.1:{port}")) == 1
    assert capsys.readouterr().err.startswith(f"simulate: cannot listen on 127.0.0.1:{port}: ")
