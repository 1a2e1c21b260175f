"""The command line: what is refused before anything listens."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from support.commands import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files that cannot be used."""
    (tmp_path / "empty").touch()
    (tmp_path / "state").write_text("{}")
    (tmp_path / "word words").write_text("two words")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--execute"], "--execute: needs --script or --kubernetes.workload"),
        (["--script", "{}/nothing"], '/nothing": is no file'),
        (["--script", "{}"], "is no file"),
        (["--script", "{}/empty"], '/empty": is not executable'),
        (["--script", "sh"], '--script "sh": is no file'),
        (["--script", "/bin/sh", "--kubernetes.workload", "m=n/deployment/d"], "give one of them"),
        (["--kubernetes.restart"], "--kubernetes.restart: needs --kubernetes.workload"),
        (["--kubernetes.context", "c"], "--kubernetes.context: needs --kubernetes.workload"),
        (["--kubernetes.context=--x", "--kubernetes.workload", "m=n/deployment/d"], "begins with -"),
        (["--kubernetes.workload", "n/deployment/d"], "allowed: MODEL=NAMESPACE/KIND/NAME"),
        (["--kubernetes.workload", "m=deployment/d"], "allowed: MODEL=NAMESPACE/KIND/NAME"),
        (["--kubernetes.workload", "m=n/daemonset/d"], "KIND is deployment or statefulset"),
        (["--kubernetes.workload", "m=n/deployment/-d"], "NAMESPACE and NAME are names of Kubernetes"),
        (["--kubernetes.workload", "m=n\n/deployment/d"], "NAMESPACE and NAME are names of Kubernetes"),
        (["--kubernetes.workload=m=n/deployment/d", "--kubernetes.workload=m=n/deployment/e"], "given twice"),
        (["--kubernetes.workload=m=n/deployment/d", "--execute"], "there is no kubectl on PATH"),
        (["--script.timeout", "0s"], '"0s": allowed: from 100ms to 1h'),
        (["--script.timeout", "60"], '"60": a duration needs a unit'),
        (["--limit.per-model", "31d"], '"31d": allowed: from 0s to 30d'),
        (["--limit.per-hour", "0"], '"0": allowed: a whole number from 1 to 1000'),
        (["--limit.per-hour", "many"], '"many": allowed: a whole number from 1 to 1000'),
        (["--state.file", "{}/state"], "not a state file of act: Object missing required field `format`"),
        (["--state.file", "{}/empty"], "not a state file of act"),
        (["--state.file", "{}/none/state"], '/none/state": cannot be written: No such file or directory'),
        (["--log.file", "{}"], "cannot be written: Is a directory"),
        (["--web.token-file", "{}/empty"], '/empty": holds no token'),
        (["--web.token-file", "{}/word words"], "holds no token: one word of printable ASCII is expected"),
        (["--web.token-file", "{}/none"], "cannot be read: No such file or directory"),
        (["--web.listen-address", "9851"], '--web.listen-address "9851": allowed: host:port'),
        (
            ["--web.listen-address", ":9851"],
            '--web.listen-address ":9851": others can reach it: give --web.token',
        ),
        (["--web.listen-address", "0.0.0.0:9851"], "others can reach it"),
        (["--web.listen-address", "[::]:9851"], "others can reach it"),
        (["--web.listen-address", "example.org:9851"], "others can reach it"),
        (["extra"], "unrecognized arguments: extra"),
    ],
)
def test_bad_usage_is_one_line(folder: Path, words: list[str], why: str) -> None:
    """It names the option, the value and what is allowed; the exit code is 2."""
    words = [word.replace("{}", str(folder)) for word in words]
    # Without a PATH that would have a kubectl.
    outcome = run("act", *words, PATH=str(folder))

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("vllm-specdec-exporter act: error: ")
    assert outcome.err.count("\n") == 1
    assert why in outcome.err


def test_insecure_beside_a_token_contradicts_itself(folder: Path) -> None:
    """Nobody should believe that it is secured."""
    (folder / "token").write_text("s3cret")
    outcome = run("act", "--web.insecure", "--web.token-file", str(folder / "token"))
    assert outcome.code == 2
    assert "--web.insecure and --web.token-file: give one of them" in outcome.err
    assert "s3cret" not in outcome.err


def test_an_address_that_is_taken() -> None:
    """One line, and exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        outcome = run("act", "--web.listen-address", address)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        f'vllm-specdec-exporter act: error: --web.listen-address "{address}": cannot listen: '
        "Address already in use\n"
    )
