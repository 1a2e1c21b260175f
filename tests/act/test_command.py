"""The command line: what is refused before anything listens."""

import socket
from pathlib import Path

from support.commands import run, wrong_refusals

WORKLOAD = "--kubernetes.workload"
#: {} is a folder with files that cannot be used.
REFUSED = [
    (["--execute"], "--execute: needs --script or --kubernetes.workload"),
    (["--script", "{}/nothing"], '/nothing": is no file'),
    (["--script", "{}/empty"], '/empty": is not executable'),
    (["--script", "sh"], '--script "sh": is no file'),
    (["--script", "/bin/sh", WORKLOAD, "m=n/deployment/d"], "give one of them"),
    (["--kubernetes.restart"], "--kubernetes.restart: needs --kubernetes.workload"),
    (["--kubernetes.context", "c"], "--kubernetes.context: needs --kubernetes.workload"),
    (["--kubernetes.context=--x", WORKLOAD, "m=n/deployment/d"], "begins with -"),
    ([WORKLOAD, "n/deployment/d"], "allowed: MODEL=[CLUSTER/]NAMESPACE/KIND/NAME"),
    ([WORKLOAD, "m=n/daemonset/d"], "KIND is deployment or statefulset"),
    ([WORKLOAD, "m=n/deployment/-d"], "NAMESPACE and NAME are Kubernetes names"),
    ([WORKLOAD, "m=n\n/deployment/d"], "NAMESPACE and NAME are Kubernetes names"),
    ([WORKLOAD, "m=n/deployment/d", WORKLOAD, "m=n/deployment/e"], "given twice"),
    ([WORKLOAD, "m=n/deployment/d", "--execute"], "there is no kubectl on PATH"),
    (["--script.timeout", "0s"], '"0s": allowed: from 100ms to 1h'),
    (["--limit.per-model", "31d"], '"31d": allowed: from 0s to 30d'),
    (["--limit.per-hour", "0"], '"0": allowed: a whole number from 1 to 1000'),
    (["--state.file", "{}/state"], "not a state file of act: Object missing required field `format`"),
    (["--state.file", "{}/none/state"], '/none/state": cannot be written: No such file or directory'),
    (["--log.file", "{}"], "cannot be written: Is a directory"),
    (["--web.token-file", "{}/two"], "holds no token: one word of printable ASCII is expected"),
    (["--web.token-file", "{}/none"], "cannot be read: No such file or directory"),
    (["--web.listen-address", "9851"], '--web.listen-address "9851": allowed: host:port'),
    (["--web.listen-address", ":9851"], ':9851": others can reach it: give --web.token'),
    (["--web.listen-address", "0.0.0.0:9851"], "others can reach it"),
    (["--web.listen-address", "[::]:9851"], "others can reach it"),
    # Nobody should believe that it is secured.
    (["--web.insecure", "--web.token-file", "{}/token"], "--web.insecure and --web.token-file: give one"),
]


def test_bad_usage_is_one_line(tmp_path: Path) -> None:
    """It names the option, the value and what is allowed; the exit code is 2."""
    for name, text in {"empty": "", "state": "{}", "two": "two words", "token": "s3cret"}.items():
        (tmp_path / name).write_text(text)
    table = [([word.replace("{}", str(tmp_path)) for word in words], why) for words, why in REFUSED]
    # Without a PATH that would have a kubectl.
    assert wrong_refusals("act", table, PATH=str(tmp_path)) == []


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
