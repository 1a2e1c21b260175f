"""What cannot be used is refused in one line, by name, and with what is allowed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from support.commands import Outcome, run, run_here
from support.exporter import running_exporter
from vllm_specdec_exporter import __version__
from vllm_specdec_exporter.serve.option_table import OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PREFIX = "VLLM_SPECDEC_EXPORTER_"
CLOSED = "http://127.0.0.1:1"
VALID = Outcome(0, "the configuration is valid\n", "")

UNIT = "needs a unit: such as 500ms, 5s, 5m or 1h30m"
URL = "allowed: http://host:port, https://host:port or unix:/path/to.sock"
POSITIVE = "num_speculative_tokens is a whole number from 1 up"

#: Words of the command line, and what the line on standard error has to hold beside them: one of each kind.
#: Every value that is refused is in tests/core.
FLAGS: list[tuple[list[str], list[str]]] = [
    (["--poll.intervall", "5s"], []),
    (["--poll.int", "5s"], []),
    (["--poll.interval"], ["expected one argument"]),
    (["sreve", "--poll.interval", "5s"], ["did you mean serve?"]),
    (["--poll.interval", "5"], ['"5"', UNIT]),
    (["--poll.interval", ""], ['""', UNIT]),
    (["--poll.interval=-5s"], ["--poll.interval", "-5s", UNIT]),
    (["--poll.timeout", "6s"], ["6s", "--poll.interval", "5s", "less than"]),
    (["--window", "5s", "--poll.interval", "10s"], ["5s", "--poll.interval", "10s"]),
    (["--window", "30d", "--poll.interval", "1s"], ["30d", "--poll.interval", "1s", "20000 samples"]),
    (["--vllm.url", "ftp://host:8000"], ["ftp://host:8000", URL]),
    (["--vllm.url", "http://:8000"], ["http://:8000", URL]),
    (["--vllm.url", "http://[::1:8000"], ["http://[::1:8000", URL]),
    (["--vllm.url", "http://my host:8000"], ["http://my host:8000", URL]),
    (["--vllm.url", "unix:vllm.sock"], ["unix:vllm.sock", "unix:/path/to.sock"]),
    (["--vllm.ca-file", "/no/such.pem"], ["/no/such.pem", "cannot be read: No such file"]),
    (["--vllm.ca-file", "/dev/null", "--vllm.url", "https://127.0.0.1:1"], ["/dev/null", "no certificates"]),
    (["--vllm.header", "abc"], ["allowed: Name: value"]),
    (["--vllm.header", "X: a\r\nY: b"], ["X", "allowed: Name: value"]),
    (["--web.listen-address", "::1:9850"], ["::1:9850", "[::1]:9850"]),
    (["--log.level", "loud"], ["loud", "debug, info, warning, error"]),
    (["--threshold", "minimum_draft=5"], ["minimum_draft=5", "minimum_drafts"]),
    (["--threshold", "poor_acceptance_ratio=1.5"], ["poor_acceptance_ratio=1.5", "between 0 and 1"]),
    (
        ["--threshold", "poor_acceptance_ratio=0.9"],
        ["poor_acceptance_ratio (0.9)", "healthy_acceptance_ratio (0.6)"],
    ),
    (["--spec.config", "method: ngram"], ["method: ngram", "not JSON", "--speculative-config"]),
    (["--spec.config", '{"num_speculative_tokens": 0}'], [POSITIVE]),
    (["--spec.config", '{"method": 4}'], ["method is a string"]),
    (["--config.file", "/no/such.yml"], ["/no/such.yml", "No such file"]),
]

#: Variables, without their prefix.
VARIABLES: list[tuple[str, str, list[str]]] = [
    ("POLL_INTERVAL", "5", ['"5"', UNIT]),
    ("VLLM_URL", "http://a:1,ftp://b", ["ftp://b", URL]),
    ("VLLM_HEADER", "A: b\nnonsense", ["allowed: Name: value"]),
    ("LOG_LEVEL", "INFO", ["INFO", "debug, info, warning, error"]),
    ("CONFIG_FILE", "/no/such.yml", ["/no/such.yml", "No such file"]),
]

FILES: list[tuple[str, list[str]]] = [
    ("poll: [", ["config.yml", "not YAML"]),
    ("poll: {}\n---\nlog: {}\n", ["config.yml", "not YAML"]),
    ("poll", ["config.yml", "a mapping of settings is expected"]),
    ("poll:\n  intervall: 5s\n", ["poll.intervall in", "did you mean poll.interval?"]),
    ("scrape: {}\n", ["scrape in", "known:", "poll.interval"]),
    ('"a\\nb": 1\n', ["no such setting"]),
    ("poll: 5s\n", ["poll in", "a mapping of settings is expected"]),
    ("poll: {interval: 5}\n", ["poll.interval in", '"5"', UNIT]),
    ("poll: {interval: [5s, 6s]}\n", ["poll.interval in", "one value"]),
    ("log: {level: {a: b}}\n", ["log.level in", "debug, info"]),
    ("vllm: {url: [http://a:1, b]}\n", ["vllm.url in", '"b"', URL]),
    ("threshold: {minimum: 5}\n", ["threshold in", '"minimum=5"', "minimum_drafts"]),
    ("spec: {config: {num_speculative_tokens: -1}}\n", ["spec.config in", "from 1 up"]),
    ("poll: {interval: 2s, timeout: 3s}\n", ["--poll.timeout", "3s", "--poll.interval", "2s"]),
]


def wrong_refusal(says: list[str], *words: str, **environment: str) -> list[str]:
    """Return what is wrong with a refusal: exit code 2, no output, one line that holds all of `says`."""
    outcome = run_here(*words, "--config.check", **environment)
    one_line = re.fullmatch(r"vllm-specdec-exporter: error: [^\n]{1,970}\n", outcome.err)
    fine = (outcome.code, outcome.out) == (2, "") and one_line and all(word in outcome.err for word in says)
    return [] if fine else [f"{words} {environment}: wanted {says}, got {outcome}"]


def test_flags_are_refused_in_one_line() -> None:
    """It names the flag, the value, and what is allowed."""
    wrong = wrong_refusal(["extra"], "--poll.interval", "5s", "extra")
    for words, says in FLAGS:
        wrong += wrong_refusal([words[0].partition("=")[0], *says], *words)
    assert wrong == []


def test_variables_are_refused_in_one_line() -> None:
    """It names the variable; of a configuration file, the file."""
    wrong = []
    for name, value, says in VARIABLES:
        own = [] if name == "CONFIG_FILE" else [PREFIX + name]
        wrong += wrong_refusal([*own, *says], **{PREFIX + name: value})
    assert wrong == []


def test_files_are_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the setting and the file."""
    monkeypatch.chdir(tmp_path)  # so that the length of the line does not depend on the folder's
    file, wrong = tmp_path / "config.yml", []
    for text, says in FILES:
        file.write_text(text)
        wrong += wrong_refusal(says, "--config.file", file.name)
    assert wrong == []


def test_the_command_itself_refuses_before_it_serves() -> None:
    """The real process: exit code 2, one line on standard error, nothing on standard output."""
    outcome = run("--log.level", "loud")

    allowed = "allowed: debug, info, warning, error"
    line = f'vllm-specdec-exporter: error: --log.level "loud": {allowed}\n'
    assert outcome == Outcome(2, "", line)


class TestConfigCheck:
    def test_good(self, tmp_path: Path) -> None:
        """A configuration that can be used is said to be valid; nothing is polled or served."""
        file = tmp_path / "config.yml"
        file.write_text(
            "poll: {interval: 10s}\n"
            "vllm:\n  url: [http://a:1, 'https://b/x']\n  header: {X-Tenant: blue}\n"
            "window: [1m, 10m]\n"
            "judgement: {window: 1m}\n"
            "threshold: {minimum_drafts: 50}\n"
            "spec: {config: {method: ngram, num_speculative_tokens: 4, prompt_lookup_max: 5}}\n"
            "web: {listen_address: ':1', disable-exporter-metrics: true}\n"
            "log: {format: json}\n"
        )
        assert run("--config.check", "--config.file", str(file)) == VALID
        assert run_here("--config.check") == VALID

    def test_bad(self, tmp_path: Path) -> None:
        """One that cannot is refused as on start; what names the file may be a variable."""
        file = tmp_path / "config.yml"
        file.write_text("log: {level: loud}\n")
        outcome = run_here("--config.check", **{f"{PREFIX}CONFIG_FILE": str(file)})

        assert (outcome.code, outcome.out) == (2, "")
        assert f'log.level in {file} "loud": allowed: debug, info, warning, error' in outcome.err


class TestPrecedence:
    def test_flag_environment_file(self) -> None:
        """A flag beats the environment, which beats the file."""
        config = {"poll": {"interval": "5m", "timeout": "1m"}, "log": {"level": "info", "interval": "7m"}}
        with running_exporter(
            "--poll.interval",
            "20s",
            env={f"{PREFIX}POLL_INTERVAL": "30s", f"{PREFIX}POLL_TIMEOUT": "10s"},
            config={**config, "vllm": {"url": CLOSED}, "web": {"listen_address": "127.0.0.1:0"}},
            fast=False,
        ) as exporter:
            shown = exporter.get("/config").text

        assert "interval: 20s\n  timeout: 10s\n" in shown
        assert "interval: 7m\n" in shown

    def test_a_bad_value_that_another_beats(self) -> None:
        """Nobody stumbles over a value that is not used."""
        assert run_here("--config.check", "--log.level", "info", **{f"{PREFIX}LOG_LEVEL": "loud"}) == VALID


def test_unknown_variables_are_warned_about() -> None:
    """A variable with the prefix that means nothing is most likely misspelt: a warning, no error.

    Those that Kubernetes sets for a Service of that name are none of its business.
    """
    kubernetes = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP_METRICS")
    kubernetes += ("PORT", "PORT_9850_TCP", "PORT_9850_TCP_ADDR")
    services = {f"{PREFIX}{name}": "tcp://10.0.0.1:9850" for name in kubernetes}
    given = {f"{PREFIX}POLL_INTERVALL": "5s", f"{PREFIX}LOG_LEVEL": "info", "OTHER": "1", **services}
    with running_exporter("--vllm.url", CLOSED, env=given) as exporter:
        lines = exporter.log_lines("unknown environment variable")

    assert [(line["name"], line["level"]) for line in lines] == [(f"{PREFIX}POLL_INTERVALL", "warning")]


def test_version() -> None:
    """`--version` shows name and version."""
    assert run_here("--version") == Outcome(0, f"vllm-specdec-exporter {__version__}\n", "")


def test_help() -> None:
    """It has every flag with its text, default and variable, and the flags that are no settings."""
    outcome = run_here("serve", "--help", COLUMNS="1000")
    text = " ".join(outcome.out.split())
    assert (outcome.code, outcome.err) == (0, "")

    wanting = []
    for row in OPTIONS:
        defaults = [row.default] if isinstance(row.default, str) else list(row.default or ())
        entry = text[text.find(f" {row.flag} {row.metavar} ") :].partition("]")[0]
        if not (all(word in entry for word in (row.help, *defaults)) and entry.endswith(f"[${row.variable}")):
            wanting.append(f"{row.flag}: {entry}")
    rest = ("--config.file", f"${PREFIX}CONFIG_FILE", "--config.check")
    assert wanting == []
    assert [words for words in rest if words not in text] == []
