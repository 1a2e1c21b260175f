"""The command as a whole: its subcommands, its errors, and the wheel that it comes in."""

from __future__ import annotations

import email
import json
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import vllm_specdec_exporter
from prometheus.replay import ReplayServer, series
from support.commands import Outcome, run, run_here
from support.exporter import running_exporter
from support.programs import COMMAND, Program, answers, clean_environment, eventually, simulator
from vllm_specdec_exporter import cli

ROOT = Path(__file__).parents[2]
PACKAGE = Path(vllm_specdec_exporter.__file__).parent
MODULE = (sys.executable, "-m", "vllm_specdec_exporter")
VERSION = f"vllm-specdec-exporter {vllm_specdec_exporter.__version__}\n"
COMMANDS = (
    *("serve", "health", "check", "requests", "baseline", "compare", "sweep", "plan", "dashboards", "act"),
    *("simulate", "demo", "calibrate"),
)


# --- subcommands


@pytest.mark.parametrize("command", [(COMMAND,), MODULE], ids=["script", "module"])
def test_the_version_is_shown(command: tuple[str, ...]) -> None:
    """The script and `python -m` are the same program."""
    assert run("--version", command=command) == Outcome(0, VERSION)


def test_every_command_explains_itself_and_has_a_version() -> None:
    """`--help` shows what the command does, and is no error; `--version` may stand behind other flags."""
    for name in COMMANDS:
        outcome = run_here(name, "--help")
        assert (outcome.code, outcome.err) == (0, ""), name
        program = "vllm-specdec-exporter" if name == "serve" else f"vllm-specdec-exporter {name}"
        assert outcome.out.startswith(f"usage: {program} [")
        assert f"{name}: " in outcome.out
        assert run_here(name, "--version") == Outcome(0, VERSION), name
    assert run_here("--log.level", "debug", "--version") == Outcome(0, VERSION)


def test_help_shows_every_command_on_one_screen() -> None:
    """24 lines of 80 columns: what it is, each command once, an example."""
    outcome = run_here("--help")
    assert (outcome.code, outcome.err, run_here("-h")) == (0, "", outcome)
    lines = outcome.out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert sorted(re.findall(r"^  (\w+)", outcome.out, re.MULTILINE)) == sorted(COMMANDS)


def test_a_mistyped_command_or_flag_is_told_which_was_likely_meant() -> None:
    """Where nothing is alike, the commands that there are."""
    start = "vllm-specdec-exporter: error: unknown command"
    assert run_here("chekc") == Outcome(2, "", f"{start} 'chekc'; did you mean check?\n")
    assert run_here("xyz") == Outcome(2, "", f"{start} 'xyz'; known: {', '.join(cli.COMMANDS)}\n")
    error = run_here("--vlm.url", "x").err
    assert "did you mean --vllm.url? (see vllm-specdec-exporter serve --help)" in error
    assert "did you mean --json? (see vllm-specdec-exporter check --help)" in run_here("check", "--jsn").err


def test_serve_is_the_default() -> None:
    """Flags without a command are flags of `serve`."""
    outcome = run("--config.check", "--vllm.url", "http://127.0.0.1:1")
    assert outcome == Outcome(0, "the configuration is valid\n")


def test_simulate_serves_metrics_that_check_understands() -> None:
    """The two commands work hand in hand."""
    with simulator("--scenario", "healthy", "--seed", "1") as url:
        outcome = run_here("check", url, "--for", "2s", "--threshold", "minimum_drafts=10")
    assert (outcome.code, outcome.err) == (0, "")
    assert "activity  active (" in outcome.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_check_can_be_interrupted(number: signal.Signals) -> None:
    """Ctrl-C ends the watch at once, without a traceback; so does SIGTERM."""
    with ReplayServer(series("nospec")) as server:
        process = subprocess.Popen(
            [COMMAND, "check", server.url, "--for", "1h"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )
        eventually(lambda: server.replies_given)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (out, err) == ("", "")
    assert process.returncode in (128 + number, -number)


# --- the wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """The package, the alert rules, the dashboards, and beside them only what describes the wheel."""
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    rules = {f"{PACKAGE.name}/rules/{path.name}" for path in (ROOT / "alerts" / "rules").iterdir()}
    dashboards = {f"{PACKAGE.name}/dashboards/{path.name}" for path in (ROOT / "dashboards/json").iterdir()}
    described = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    assert package | rules | dashboards == names - described
    assert {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    } == {name.partition("/")[2] for name in described}
    for data in ("py.typed", "publish/status_page/status_page.css", "commands/simulate/data/vllm.json"):
        assert f"vllm_specdec_exporter/{data}" in names


def test_the_wheel_needs_what_the_lock_file_pins(wheel: Path) -> None:
    """Each of its requirements is in the lock file, and none of them is for developing; it has a licence."""
    archive = zipfile.ZipFile(wheel)
    files = {name.partition("/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
    assert b"Apache License" in archive.read(files["licenses/LICENSE"])
    metadata = email.message_from_bytes(archive.read(files["METADATA"]))
    required = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    names = {re.split(r"[^\w-]", text)[0] for text in required}
    locked = (ROOT / "requirements" / "runtime.txt").read_text(encoding="utf-8")
    assert names <= set(re.findall(r"^([\w-]+)==", locked, re.MULTILINE))
    wanted = {"aiohappyeyeballs", "aiohttp", "bcrypt", "httptools", "msgspec", "prometheus-client", "pyyaml"}
    assert names == wanted


def _pip(folder: Path) -> tuple[str, ...]:
    """The developers' pip, at work on the environment in `folder`, which has none of its own."""
    return (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in a fresh environment, with the locked packages only."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    pip = [*_pip(folder), "install", "-q", "--disable-pip-version-check", "--no-compile"]
    locked = str(ROOT / "requirements" / "runtime.txt")
    subprocess.run([*pip, "--require-hashes", "-r", locked], check=True, timeout=100)
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True, timeout=60)
    return folder / "bin" / "vllm-specdec-exporter"


@pytest.mark.full
@pytest.mark.timeout(300)  # a dozen commands of a fresh environment
def test_the_installed_wheel_works(installed: Path) -> None:
    """From the wheel and the locked packages alone, every command runs; `serve` and `simulate` answer.

    The environment has none of the developers' packages.
    """
    command = (str(installed),)
    assert run("--version", command=command).out == VERSION
    assert [0] * len(COMMANDS) == [run(name, "--help", command=command).code for name in COMMANDS]
    words = [*command, "simulate", "--web.listen-address", "{address}"]
    with Program(words, ready="/metrics") as simulated:
        flags = ("--vllm.url", simulated.url, "--poll.interval", "200ms")
        with running_exporter(*flags, command=command, fast=False) as served:
            outcome = run("check", simulated.url, "--for", "1s", "--json", command=command)
            assert [answers(served.url + path) for path in ("/metrics", "/", "/config")] == [True] * 3
    assert json.loads(outcome.out)["targets"][0]["up"] is True

    pip = _pip(installed.parents[1])
    names = {package["name"].lower() for package in json.loads(run("list", "--format=json", command=pip).out)}
    assert not names & {"pytest", "hatchling", "hypothesis", "mypy", "ruff", "jsonschema"}
    assert run("check", command=pip).code == 0
