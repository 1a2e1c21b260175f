"""What cannot be used is refused in one line, by name, and with what is allowed."""

import re
import resource
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from compare.sides import written
from support.commands import Outcome, run, run_here, wrong_refusals
from support.exporter import running_exporter
from support.programs import COMMAND
from vllm_specdec_exporter.commands.demo import SCENARIOS
from vllm_specdec_exporter.settings.option_table import OPTIONS

PREFIX = "VLLM_SPECDEC_EXPORTER_"
CLOSED = "http://127.0.0.1:1"
#: Words behind each command, and what refuses them.
USAGE = yaml.safe_load(Path(__file__).with_name("usage.yml").read_text("utf-8"))
#: Files of `act` that cannot be used.
UNUSABLE = {
    "empty": "",
    "state": '{"format": "vllm-specdec-act/1"}',
    "two": "two words",
    "token": "s3cret",
}
VALID = Outcome(0, "the configuration is valid\n", "")


LEVELS = '"loud": allowed: debug, info, warning, error'


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["--poll.int", "5s"], {}, "unrecognized arguments: --poll.int 5s"),
        (["--poll.interval"], {}, "argument --poll.interval: expected one argument"),
        (["--log.level", "loud"], {}, f"--log.level {LEVELS}"),
        ([], {f"{PREFIX}LOG_LEVEL": "loud"}, f"{PREFIX}LOG_LEVEL {LEVELS}"),
        (["--config.file", "c.yml"], {}, f"log.level in c.yml {LEVELS}"),
        ([], {f"{PREFIX}CONFIG_FILE": "c.yml"}, f"log.level in c.yml {LEVELS}"),
    ],
)
def test_refusals_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    environment: dict[str, str],
    message: str,
) -> None:
    """It names flag, variable or setting, the value, and what is allowed.

    All values: tests/core.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yml").write_text("log: {level: loud}\n")
    outcome = run_here(*arguments, "--config.check", **environment)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("vllm-specdec-exporter: error: ")
    assert message in outcome.err


@pytest.mark.parametrize("command", USAGE)
def test_bad_usage_of_a_command_is_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with 2, before anything is sent or written, and repeats no password."""
    for name, text in UNUSABLE.items():
        (tmp_path / name).write_text(text)
    arguments = {
        "folder": str(tmp_path),
        "sizes": "--target-params 70B --draft-params 8B",
        "h200": "--gpus 2 --gpu h200",
        "long": "9" * 400,
    }
    if command == "compare":
        arguments |= written(tmp_path)
    monkeypatch.chdir(tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    table = [
        (shlex.split(typed.format(**arguments)), message)
        for typed, message in USAGE[command]
    ]
    assert wrong_refusals(command, table) == []
    assert {path.name for path in tmp_path.iterdir()} - files <= {"state.lock"}
    assert "geheim" not in "".join(run_here(command, *typed).err for typed, _ in table)


def test_a_configuration_that_can_be_used_is_said_to_be_valid(tmp_path: Path) -> None:
    """Nothing is polled or served."""
    file = tmp_path / "config.yml"
    file.write_text(
        "poll: {interval: 10s}\n"
        "vllm:\n  url: [http://a:1, 'https://b/x']\n  header: {X-Tenant: blue}\n"
        "spec: {config: {method: ngram, num_speculative_tokens: 4, "
        "prompt_lookup_max: 5}}\n"
        "web: {listen_address: ':1', disable-exporter-metrics: true}\n"
    )
    outcome = run("--config.check", "--config.file", str(file))
    assert (outcome.code, outcome.out) == (0, VALID.out)
    assert outcome.err.startswith("warning: one --spec.config for several servers ")
    assert run_here("--config.check") == VALID


def test_unknown_variables_are_warned_about() -> None:
    """A variable that means nothing is most likely misspelt; those of a Kubernetes
    Service are left alone.
    """
    names = (
        "POLL_INTERVALL",
        "LOG_LEVEL",
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_HTTP_METRICS",
        "PORT",
        "PORT_9850_TCP",
        "PORT_9850_TCP_ADDR",
    )
    variables = {f"{PREFIX}{name}": "info" for name in names} | {
        "VLLM_SPECDEC_POLL_INTERVAL": "5s"
    }
    with running_exporter(
        "--vllm.url", CLOSED, env=variables | {"VLLM_SPECDEC_URL": "http://x"}
    ) as exporter:
        lines = exporter.log_lines("unknown environment variable")

    misspelt = [f"{PREFIX}POLL_INTERVALL", "VLLM_SPECDEC_POLL_INTERVAL"]
    assert [(line["name"], line["level"]) for line in lines] == [
        (name, "warning") for name in misspelt
    ]
    assert {line["did_you_mean"] for line in lines} == {f"{PREFIX}POLL_INTERVAL"}
    checked = run_here("--config.check", **variables)
    assert checked.code == 0
    assert checked.err.splitlines() == [
        f"warning: unknown environment variable {name}; did you mean "
        f"{PREFIX}POLL_INTERVAL?"
        for name in misspelt
    ]


def test_a_wrong_scenario_is_told_all_there_are() -> None:
    """In quotes or not: Python's versions differ."""
    told = run_here("demo", "--for=2s", "--scenario=nonsense").err
    choices = told.partition("(choose from ")[2].partition(")")[0]
    assert choices.replace("'", "").split(", ") == list(SCENARIOS)


def test_help() -> None:
    """It has every flag, and those that are no settings.

    Their texts: tests/core/test_options.py.
    """
    outcome = run_here("serve", "--help-all")
    flags = {row.flag for row in OPTIONS} | {"--config.file", "--config.check"}
    assert outcome.code == 0
    assert outcome.err == ""
    assert flags - set(outcome.out.split()) == set()


@pytest.mark.parametrize("command", ["serve", "check", "compare"])
def test_the_short_help_has_ten_flags(command: str) -> None:
    """It fits into two screens, and says where the others are."""
    outcome = run_here(command, "--help")
    flags = re.findall("^  (--[a-z.-]+)", outcome.out, re.MULTILINE)
    assert len(flags) == 11
    assert "--help-all" in flags
    assert outcome.out.count("\n") <= 60


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(shell: str) -> None:
    """A shell that sourced the script completes commands, flags and choices."""
    script = run_here("completion", shell).out
    assert script.startswith("autoload") is (shell == "zsh")
    asked = {
        ("che",): "check",
        ("check", "--vllm.be"): "--vllm.bearer-token-file",
        ("check", "--color", "al"): "always",
        ("--poll.i",): "--poll.interval",
        ("completion", "z"): "zsh",
    }
    for words, completed in asked.items():
        typed = shlex.join(("vllm-specdec-exporter", *words))
        complete = (
            f"COMP_WORDS=({typed}) COMP_CWORD={len(words)}\n"
            '_vllm_specdec_exporter; echo "${COMPREPLY[*]}"'
        )
        body = script.removeprefix("autoload -U +X bashcompinit && bashcompinit\n")
        outcome = run("-c", f"{body}\n{complete}", command=("bash",))
        assert outcome == Outcome(0, f"{completed}\n", "")


def test_what_the_shortest_commands_import() -> None:
    """`--version` and an unknown command have no use for the settings, nor for a
    library.
    """
    script = (
        "import sys\nfrom vllm_specdec_exporter.cli import main\n"
        "main([word]) if (word := sys.argv[1]) else 0\n"
        "print(*sys.modules)"
    )
    for word in ("--version", "--help"):
        done = run("-c", script, word, command=(sys.executable,))
        names = set(done.out.splitlines()[-1].split())
        assert {"argparse", "msgspec", "json", "aiohttp"} & names == set()


#: Modules that a sidecar needs for a tap, pushes, passwords, TLS, files, pages or
#: errors only.
LATE = (
    "bcrypt",
    "difflib",
    "jinja2",
    "markupsafe",
    "yaml",
    "economics.architecture",
    "economics.baseline",
    "publish.pages",
    "publish.status_page",
    "per_request.aggregation",
    "per_request.acceptance",
    "per_request.openai_api",
    "per_request.push_schema",
    "serve.tap.tap",
    "listener.web_config.document",
    "listener.web_config.fields",
    "listener.web_config.middleware",
)


def test_imports_of_a_plain_sidecar() -> None:
    """Nothing that takes memory without use."""
    script = (
        "import sys\nfrom vllm_specdec_exporter.cli import main\n"
        "main(['--vllm.url', 'http://127.0.0.1:1', '--cost.hardware', 'h100', "
        "'--config.check'])\n"
        "print(*(name.removeprefix('vllm_specdec_exporter.') for name in "
        "sys.modules))\n"
    )
    _, names = run("-c", script, command=(sys.executable,)).out.splitlines()

    assert set(LATE) & set(names.split()) == set()


@pytest.mark.parametrize("given", ["", "/etc/own-certificates.pem"])
def test_a_start_reads_no_certificates(given: str) -> None:
    """The client of aiohttp would, twice; those that an https server needs are read
    from where they were.
    """
    script = (
        "import os, sys\nfrom vllm_specdec_exporter.cli import main\n"
        "sys.argv = ['x', '--vllm.url', 'http://127.0.0.1:1', '--config.check']\n"
        "main()\nimport aiohttp.connector as client\n"
        "print(client._SSL_CONTEXT_VERIFIED.cert_store_stats()['x509'],"
        " client._SSL_CONTEXT_UNVERIFIED.cert_store_stats()['x509'],"
        " os.environ.get('SSL_CERT_FILE', ''))\n"
    )
    done = run("-c", script, command=(sys.executable,), SSL_CERT_FILE=given)
    assert done.out.splitlines()[-1] == f"0 0 {given}"


def test_open_files_are_limited_by_the_hard_limit_only() -> None:
    """Each server takes one, with and without a tap."""
    shell = ("/bin/sh", "-c", 'ulimit -Sn 128; exec "$@"', "sh", COMMAND)
    with running_exporter(command=shell) as exporter:
        soft, hard = resource.prlimit(exporter.pid, resource.RLIMIT_NOFILE)
        assert soft == hard > 128
