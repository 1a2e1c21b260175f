"""What cannot be used is refused by the real command: in one line, by name, and with what is allowed."""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from support.exporter import running_exporter
from support.programs import COMMAND, clean_environment
from vllm_specdec_exporter import __version__
from vllm_specdec_exporter.option_table import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PREFIX = "VLLM_SPECDEC_EXPORTER_"
CLOSED = "http://127.0.0.1:1"


@dataclass(frozen=True)
class Case:
    """Flags, environment and file, and what the one line on standard error must hold."""

    says: tuple[str, ...]
    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    file: str | None = None


def flag(name: str, value: str, *says: str) -> Case:
    return Case((name, value, *says), flags=(name, value))


def variable(name: str, value: str, *says: str) -> Case:
    return Case((PREFIX + name, value, *says), env={PREFIX + name: value})


def yaml(text: str, *says: str) -> Case:
    return Case(says, file=text)


UNIT = "needs a unit: such as 500ms, 5s, 5m or 1h30m"
URL = "allowed: http://host:port, https://host:port or unix:/path/to.sock"

BAD: dict[str, Case] = {
    # Flags.
    "no such flag": Case(("--poll.intervall",), flags=("--poll.intervall", "5s")),
    "abbreviated flag": Case(("--poll.int",), flags=("--poll.int", "5s")),
    "stray word behind": Case(("extra",), flags=("--poll.interval", "5s", "extra")),
    "flag without a value": Case(("--poll.interval", "expected one argument"), flags=("--poll.interval",)),
    "no such command": Case(
        ("sreve", "serve", "check", "simulate", "demo"), flags=("sreve", "--poll.interval", "5s")
    ),
    "duration without a unit": flag("--poll.interval", "5", UNIT),
    "duration in words": flag("--poll.interval", "five", UNIT),
    "empty duration": Case(("--poll.interval", '""', UNIT), flags=("--poll.interval", "")),
    "negative duration": Case(("--poll.interval", "-5s", UNIT), flags=("--poll.interval=-5s",)),
    "fraction of a unit": flag("--poll.interval", "1.5s", UNIT),
    "units in the wrong order": flag("--window", "1s1m", UNIT),
    "zero interval": flag("--poll.interval", "0s", "at least 100ms"),
    "timeout beyond the interval": Case(
        ("--poll.timeout", "6s", "--poll.interval", "5s", "less than"), flags=("--poll.timeout", "6s")
    ),
    "timeout too short": flag("--poll.timeout", "1ms", "at least 50ms"),
    "window shorter than the interval": Case(
        ("--window", "5s", "--poll.interval", "10s"),
        flags=("--window", "5s", "--poll.interval", "10s"),
    ),
    "window of too many samples": Case(
        ("--window", "30d", "--poll.interval", "1s", "20000 samples"),
        flags=("--window", "30d", "--poll.interval", "1s"),
    ),
    "zero window": flag("--window", "0s", "at least 1s"),
    "judged window that is none": flag("--judgement.window", "1m", "30s, 5m"),
    "scheme": flag("--vllm.url", "ftp://host:8000", URL),
    "no scheme": flag("--vllm.url", "host:8000", URL),
    "no host": flag("--vllm.url", "http://:8000", URL),
    "no port number": flag("--vllm.url", "http://host:abc", URL),
    "port out of range": flag("--vllm.url", "http://host:99999", URL),
    "bracket": flag("--vllm.url", "http://[::1:8000", URL),
    "fragment": flag("--vllm.url", "http://host:8000/#top", URL),
    "space in the host": flag("--vllm.url", "http://my host:8000", URL),
    "relative socket": flag("--vllm.url", "unix:vllm.sock", "unix:/path/to.sock"),
    "server twice": Case(
        ("--vllm.url", "http://a:1", "given twice"),
        flags=("--vllm.url", "http://a:1", "--vllm.url", "http://a:1/metrics"),
    ),
    "no such file": flag("--vllm.ca-file", "/no/such/file.pem", "cannot be read: No such file"),
    "certificate without a key": Case(
        ("--vllm.cert-file", "--vllm.key-file", "go together"), flags=("--vllm.cert-file", "/dev/null")
    ),
    "file without certificates": Case(
        ("--vllm.ca-file", "/dev/null", "no certificates"),
        flags=("--vllm.ca-file", "/dev/null", "--vllm.url", "https://127.0.0.1:1"),
    ),
    "header without a colon": Case(("--vllm.header", "allowed: Name: value"), flags=("--vllm.header", "abc")),
    "header with a line break": Case(
        ("--vllm.header", "X", "allowed: Name: value"), flags=("--vllm.header", "X: a\r\nY: b")
    ),
    "neither true nor false": flag("--vllm.insecure-skip-verify", "maybe", "true, false"),
    "listen port": flag("--web.listen-address", ":70000", "from 0 to 65535"),
    "listen without a port": flag("--web.listen-address", "localhost", "host:port"),
    "listen on a bare IPv6 address": flag("--web.listen-address", "::1:9850", "[::1]:9850"),
    "log format": flag("--log.format", "xml", "logfmt, json"),
    "log level": flag("--log.level", "loud", "debug, info, warning, error"),
    "no such threshold": flag("--threshold", "minimum_draft=5", "minimum_drafts"),
    "threshold that is no number": flag("--threshold", "minimum_drafts=many", "name=number"),
    "threshold without a value": flag("--threshold", "minimum_drafts", "name=number"),
    "threshold out of range": flag("--threshold", "poor_acceptance_ratio=1.5", "between 0 and 1"),
    "threshold that is not a number": flag("--threshold", "minimum_drafts=nan", "at least 1"),
    "thresholds in the wrong order": Case(
        ("--threshold", "poor_acceptance_ratio (0.9)", "healthy_acceptance_ratio (0.6)"),
        flags=("--threshold", "poor_acceptance_ratio=0.9"),
    ),
    "spec config that is no JSON": Case(
        ("--spec.config", "method: ngram", "not JSON", "--speculative-config"),
        flags=("--spec.config", "method: ngram"),
    ),
    "spec config that is no object": flag("--spec.config", "[1]", "a JSON object is expected"),
    "K of nothing": Case(
        ("--spec.config", "num_speculative_tokens is a whole number from 1 up"),
        flags=("--spec.config", '{"num_speculative_tokens": 0}'),
    ),
    "K in words": Case(
        ("--spec.config", "num_speculative_tokens is a whole number from 1 up"),
        flags=("--spec.config", '{"num_speculative_tokens": "four"}'),
    ),
    "method that is no text": Case(
        ("--spec.config", "method is a string"), flags=("--spec.config", '{"method": 4}')
    ),
    "no such configuration file": Case(
        ("--config.file", "/no/such.yml", "No such file"), flags=("--config.file", "/no/such.yml")
    ),
    # The environment.
    "variable: duration": variable("POLL_INTERVAL", "5", UNIT),
    "variable: URL in a list": Case(
        (f"{PREFIX}VLLM_URL", "ftp://b", URL), env={f"{PREFIX}VLLM_URL": "http://a:1,ftp://b"}
    ),
    "variable: header in a list": Case(
        (f"{PREFIX}VLLM_HEADER", "allowed: Name: value"), env={f"{PREFIX}VLLM_HEADER": "A: b\nnonsense"}
    ),
    "variable: log level": variable("LOG_LEVEL", "INFO", "debug, info, warning, error"),
    "variable: configuration file": Case(
        ("/no/such.yml", "No such file"), env={f"{PREFIX}CONFIG_FILE": "/no/such.yml"}
    ),
    # The file.
    "YAML: not YAML": yaml("poll: [", "config.yml", "not YAML"),
    "YAML: a tab": yaml("poll:\n\tinterval: 5s\n", "config.yml", "not YAML"),
    "YAML: two documents": yaml("poll: {}\n---\nlog: {}\n", "config.yml", "not YAML"),
    "YAML: a list": yaml("- poll\n", "config.yml", "a mapping of settings is expected"),
    "YAML: a word": yaml("poll", "config.yml", "a mapping of settings is expected"),
    "YAML: no such key": yaml("poll:\n  intervall: 5s\n", "poll.intervall in", "did you mean poll.interval?"),
    "YAML: no such section": yaml("scrape: {}\n", "scrape in", "known:", "poll.interval"),
    "YAML: a line break in a key": yaml('"a\\nb": 1\n', "no such setting"),
    "YAML: a value for a section": yaml("poll: 5s\n", "poll in", "a mapping of settings is expected"),
    "YAML: duration": yaml("poll: {interval: 5}\n", "poll.interval in", '"5"', UNIT),
    "YAML: list for one value": yaml("poll: {interval: [5s, 6s]}\n", "poll.interval in", "one value"),
    "YAML: mapping for one value": yaml("log: {level: {a: b}}\n", "log.level in", "debug, info"),
    "YAML: URL in a list": yaml("vllm: {url: [http://a:1, b]}\n", "vllm.url in", '"b"', URL),
    "YAML: threshold": yaml("threshold: {minimum: 5}\n", "threshold in", '"minimum=5"', "minimum_drafts"),
    "YAML: spec config": yaml(
        "spec: {config: {num_speculative_tokens: -1}}\n", "spec.config in", "from 1 up"
    ),
    "YAML: what does not fit together": yaml(
        "poll: {interval: 2s, timeout: 3s}\n", "--poll.timeout", "3s", "--poll.interval", "2s"
    ),
}

#: Addresses and headers that cannot be used; the password in them must not be shown for it.
SECRETS = (
    ("--vllm.url", "ftp://user:hunter2@host"),
    ("--vllm.url", "http://user:hunter2@host:abc"),
    ("--vllm.url", "http://user:hunter2@"),
    ("--vllm.url", "user:hunter2@host:8000"),
    ("--vllm.url", "http://user:hunter2/3@host:8000"),
    ("--vllm.url", "http://user:8/hunter2@host:8000/#"),
    ("--vllm.url", "http://user:4@hunter2@host:abc"),
    ("--vllm.header", "hunter2"),
    ("--vllm.header", "X Y: hunter2"),
    ("--vllm.header", "Authorization: hunter2\x01"),
)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def run(*args: str, env: Mapping[str, str] | None = None) -> Outcome:
    """Run the command; one that goes on to serve is ended, and has no exit code of its own."""
    process = subprocess.Popen(
        [COMMAND, *args],
        env=clean_environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    return Outcome(process.returncode, out.decode(), err.decode())


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[object, Outcome]:
    """What the command did in every case; side by side, because starting it takes the time."""

    def start(name: object) -> Outcome:
        if isinstance(name, tuple):
            return run(*name, "--config.check")  # to end, also where it is taken
        case = BAD[str(name)]
        args = list(case.flags)
        if case.file is not None:
            file: Path = tmp_path_factory.mktemp("bad") / "config.yml"
            file.write_text(case.file)
            args += ["--config.file", str(file)]
        return run(*args, env=case.env)

    names: list[object] = [*BAD, *SECRETS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(start, names), strict=True))


@pytest.mark.parametrize("name", BAD)
def test_is_refused_in_one_line(outcomes: dict[object, Outcome], name: str) -> None:
    """Exit code 2, and one line that names where the value came from, the value, and what is allowed."""
    outcome = outcomes[name]

    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"vllm-specdec-exporter: error: [^\n]+\n", outcome.err)
    for words in BAD[name].says:
        assert words in outcome.err
    assert len(outcome.err) < 1000


@pytest.mark.parametrize("words", SECRETS)
def test_secrets_are_not_shown(outcomes: dict[object, Outcome], words: tuple[str, str]) -> None:
    """An error about an address or a header does not show the password in it."""
    outcome = outcomes[words]

    assert (outcome.code, outcome.out) == (2, "")
    assert words[0] in outcome.err
    assert "hunter2" not in outcome.err


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
        assert Outcome(0, "the configuration is valid\n", "") == run(
            "--config.check", "--config.file", str(file)
        )

    def test_bad(self, tmp_path: Path) -> None:
        """One that cannot is refused as on start."""
        file = tmp_path / "config.yml"
        file.write_text("log: {level: loud}\n")
        outcome = run("--config.check", env={f"{PREFIX}CONFIG_FILE": str(file)})

        assert (outcome.code, outcome.out) == (2, "")
        assert f'log.level in {file} "loud": allowed: debug, info, warning, error' in outcome.err

    def test_nothing_given(self) -> None:
        """The defaults are valid."""
        assert Outcome(0, "the configuration is valid\n", "") == run("--config.check")


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
        assert run("--config.check", "--log.level", "info", env={f"{PREFIX}LOG_LEVEL": "loud"}).code == 0


class TestUnknownVariables:
    def test_are_warned_about(self) -> None:
        """A variable with the prefix that means nothing is most likely misspelt: a warning, no error."""
        kubernetes = {
            f"{PREFIX}{name}": "tcp://10.0.0.1:9850"
            for name in (
                "SERVICE_HOST",
                "SERVICE_PORT",
                "SERVICE_PORT_HTTP_METRICS",
                "PORT",
                "PORT_9850_TCP",
                "PORT_9850_TCP_ADDR",
            )
        }
        given = {f"{PREFIX}POLL_INTERVALL": "5s", f"{PREFIX}LOG_LEVEL": "info", "OTHER": "1", **kubernetes}
        with running_exporter("--vllm.url", CLOSED, env=given) as exporter:
            lines = exporter.log_lines("unknown environment variable")

        assert [f"{PREFIX}POLL_INTERVALL"] == [line["name"] for line in lines]
        assert [line["level"] for line in lines] == ["warning"]


def test_version() -> None:
    """`--version` shows name and version."""
    assert Outcome(0, f"vllm-specdec-exporter {__version__}\n", "") == run("--version")


class TestHelp:
    @pytest.fixture(scope="class")
    @staticmethod
    def text() -> str:
        """The help as one line, whatever the width of the terminal."""
        outcome = run("--help", env={"COLUMNS": "1000"})
        assert (outcome.code, outcome.err) == (0, "")
        return " ".join(outcome.out.split())

    @pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
    def test_every_option(self, text: str, option: object) -> None:
        """The help has every flag with its text, its default and its environment variable."""
        row = next(row for row in OPTIONS if row is option)
        defaults = [row.default] if isinstance(row.default, str) else list(row.default or ())
        entry = text[text.index(f" {row.flag} {row.metavar} ") :].partition("]")[0]

        assert row.help in entry
        assert entry.endswith(f"[${row.variable}")
        assert all(default in entry for default in defaults)

    def test_the_rest(self, text: str) -> None:
        """It also has the flags that are no settings, and the other commands."""
        for words in ("--config.file", f"${PREFIX}CONFIG_FILE", "--config.check", "check:", "simulate:"):
            assert words in text

    def test_serve_by_name(self) -> None:
        """`serve` is the default, and may be said."""
        assert run("serve", "--help") == run("--help")
