"""The command line: what is refused before anything listens."""

import socket
from pathlib import Path

from support.commands import run, wrong_refusals

#: {} is a folder with files that cannot be used.
REFUSED = [
    (["--execute"], "--execute: needs --script to say what is done"),
    (["--script", "{}/nothing"], '/nothing": is not an executable file'),
    (["--script", "{}/empty"], '/empty": is not an executable file'),
    (["--script", "sh"], '--script "sh": is not an executable file'),
    (["--kubernetes.workload", "m=n/deployment/d"], "unrecognized arguments: --kubernetes.workload"),
    (["--script.timeout", "0s"], '"0s": allowed: from 100ms to 1h'),
    (["--limit.per-model", "31d"], '"31d": allowed: from 0s to 30d'),
    (["--limit.per-hour", "0"], '"0": allowed: a whole number from 1 to 1000'),
    (["--state.file", "{}/state"], "cannot be used: Invalid enum value 'vllm-specdec-act/1'"),
    (
        ["--state.file", "{}/none/state"],
        '/none/state": state.lock cannot be made beside it: No such file or directory',
    ),
    (["--web.token-file", "{}/two"], "holds no token: one word of printable ASCII is expected"),
    (["--web.token-file", "{}/none"], "cannot be read: No such file or directory"),
    (["--web.listen-address", "9851"], '--web.listen-address "9851": allowed: host:port'),
    (["--web.listen-address", ":9851"], ':9851": others can reach it: give --web.token'),
    (["--web.listen-address", "0.0.0.0:9851"], "others can reach it"),
    (["--web.listen-address", "[::]:9851"], "others can reach it"),
    (["--web.listen-address", "localhost.example:9851"], "others can reach it"),
    # Nobody should believe that it is secured.
    (["--web.insecure", "--web.token-file", "{}/token"], "--web.insecure and --web.token-file: give one"),
]


def test_bad_usage_is_one_line(tmp_path: Path) -> None:
    """It names the option, the value and what is allowed; the exit code is 2."""
    for name, text in {
        "empty": "",
        "state": '{"format": "vllm-specdec-act/1"}',
        "two": "two words",
        "token": "s3cret",
    }.items():
        (tmp_path / name).write_text(text)
    table = [([word.replace("{}", str(tmp_path)) for word in words], why) for words, why in REFUSED]
    assert wrong_refusals("act", table) == []


def test_an_address_in_use() -> None:
    """One line, and exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        outcome = run("act", "--web.listen-address", address)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        f'vllm-specdec-exporter act: error: --web.listen-address "{address}": cannot listen: '
        "Address already in use\n"
    )
