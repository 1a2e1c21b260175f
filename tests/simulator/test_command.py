"""`simulate`: it serves until it is told to stop, and refuses what it cannot do in one
line.
"""

import json
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from support.commands import run_here, started
from support.ports import free_port
from support.programs import answers, eventually


def get(url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, body, timeout=100) as answer:
        return bytes(answer.read())


@pytest.mark.parametrize(
    ("number", "closed"), [(signal.SIGINT, False), (signal.SIGTERM, True)]
)
def test_it_serves_quietly_and_stops_when_told_even_while_the_port_is_closed(
    number: signal.Signals, closed: bool, tmp_path: Path
) -> None:
    scenario = tmp_path / "steady.yaml"
    scenario.write_text("phases: [{phase: healthy, seconds: 300}]")
    address = f"127.0.0.1:{free_port()}"
    url = f"http://{address}"
    flags = "--engines 2 --model a --num-speculative-tokens 3 --seed 1 --speed 10"
    arguments = (
        "--web.listen-address",
        address,
        "--scenario.file",
        str(scenario),
        *flags.split(),
    )
    with started("simulate", *arguments) as process:
        eventually(lambda: answers(f"{url}/health"))
        eventually(lambda: json.loads(get(f"{url}/simulator"))["elapsed_seconds"] > 3)
        status = json.loads(get(f"{url}/simulator"))
        body = get(f"{url}/metrics").decode()
        if closed:
            get(
                f"{url}/simulator/phase",
                b'{"phase": "restart", "downtime_seconds": 99999}',
            )
            eventually(lambda: not answers(f"{url}/health"))
        process.send_signal(number)
        output, errors = process.communicate(timeout=100)
    assert process.returncode == 0
    assert output == ""
    assert errors == f"simulate: serving {url}/metrics (scenario steady)\n"
    assert 'vllm:spec_decode_num_drafts_total{engine="1",model_name="a"}' in body
    assert status["scenario"] == "steady"
    assert status["num_speculative_tokens"] == 3


def test_a_taken_port_ends_with_status_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = run_here("simulate", "--web.listen-address", address)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith(f"simulate: cannot listen on {address}: ")
