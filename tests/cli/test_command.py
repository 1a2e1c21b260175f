"""The command as a whole: its subcommands and its errors."""

import json
import re
import signal
import sys
from itertools import islice

import pytest

import vllm_specdec_exporter
from prometheus.replay import ReplayServer, series
from support.commands import Outcome, run, run_here, started
from support.faulty_server import CLASSIC, FaultyServer, capture, head, raw
from support.programs import COMMAND, eventually
from vllm_specdec_exporter.commands.exit_codes import INTERRUPTED
from vllm_specdec_exporter.commands.table import COMMANDS

MODULE = (sys.executable, "-m", "vllm_specdec_exporter")
VERSION = f"vllm-specdec-exporter {vllm_specdec_exporter.__version__}\n"
# --- subcommands


@pytest.mark.parametrize("command", [(COMMAND,), MODULE], ids=["script", "module"])
def test_the_version_is_shown(command: tuple[str, ...]) -> None:
    """The script and `python -m` are the same program; the flag may stand behind
    others.
    """
    assert run("--log.level", "debug", "--version", command=command) == Outcome(
        0, VERSION
    )


@pytest.mark.parametrize(
    "arguments",
    ["--help", "plan --help", "--version", "dashboards", "check http://127.0.0.1:1"],
)
def test_a_full_disk_is_no_verdict(arguments: str) -> None:
    """It has its own exit code, and one line: 1 of `check` means that speculation
    loses.
    """
    outcome = run("-c", f"'{COMMAND}' {arguments} > /dev/full", command=("bash",))
    error = (
        "vllm-specdec-exporter: error: the output cannot be written: No space left on "
        "device\n"
    )
    assert outcome == Outcome(74, "", error)


def test_help_shows_every_command_on_one_screen() -> None:
    """24 lines of 80 columns: what it is, each command once, an example."""
    outcome = run_here("--help")
    assert outcome.code == 0
    assert outcome.err == ""
    assert run_here("-h") == outcome
    lines = outcome.out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    names = re.findall(r"^  (\w+)", outcome.out, re.MULTILINE)
    assert [*names, "completion"] == list(COMMANDS)
    assert " ".join(names) == (
        "serve demo health dashboards act check compare history requests baseline "
        "calibrate plan sweep simulate"
    )


def test_a_mistyped_command_or_flag_is_told_which_was_likely_meant() -> None:
    """Where nothing is alike, the commands that there are."""
    start = "vllm-specdec-exporter: error: unknown command"
    assert run_here("chekc") == Outcome(
        2, "", f"{start} 'chekc'; did you mean check?\n"
    )
    assert run_here("xyz") == Outcome(
        2, "", f"{start} 'xyz'; known: {', '.join(COMMANDS)}\n"
    )
    error = run_here("--vlm.url", "x").err
    assert "did you mean --vllm.url? (see vllm-specdec-exporter serve --help)" in error
    assert (
        "did you mean --json? (see vllm-specdec-exporter check --help)"
        in run_here("check", "--jsn").err
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_check_can_be_interrupted(number: signal.Signals) -> None:
    """Ctrl-C ends the watch at once, without a traceback; so does SIGTERM."""
    with (
        ReplayServer(series("nospec")) as server,
        started("check", server.url, "--for", "1h") as process,
    ):
        eventually(lambda: server.replies_given)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert out == ""
    assert err == ""
    assert process.returncode in (128 + number, -number)


def test_a_watch_reports_again_and_again_until_it_is_interrupted() -> None:
    """Not cleared where it is no terminal; its end is that of Ctrl+C, whatever the
    verdict.
    """
    with (
        ReplayServer(series("ngram-phases"), version="0.32.0") as server,
        started("check", server.url, "--for=1s", "--watch") as process,
    ):
        out = iter(process.stdout.readline, "")
        reports = list(islice((line for line in out if line.startswith("http")), 2))
        process.send_signal(signal.SIGINT)
        remaining, err = process.communicate(timeout=120)
    assert reports == [f"{server.url}\n"] * 2
    assert "\x1b" not in remaining
    assert err == ""
    assert process.returncode in (INTERRUPTED, -signal.SIGINT)


def test_every_command_that_reads_a_server_takes_a_deadline_and_its_access() -> None:
    """A vLLM under load answers in 6 to 24 seconds, and some need a header, a token or
    certificates.
    """
    slow = raw(0.5, head(Content_Type=CLASSIC) + capture())
    access = ("--poll.timeout=100ms", "--vllm.header=X-Tenant: blue")
    nowhere = ("--out=/dev/null",)
    with FaultyServer(slow) as server:
        for arguments in (
            ("check", server.url, "--for=1s"),
            ("compare", server.url, f"{server.url}/metrics/", "--for=1s"),
            ("baseline", server.url, "--for=2s", *nowhere),
            ("calibrate", server.url, f"--plain-url={server.url}", "--quiet", *nowhere),
        ):
            outcome = run_here(*arguments, *access)
            assert outcome.code == 4, arguments
            assert "within 0.1 s" in outcome.out + outcome.err, arguments
            assert server.requests[-1].headers["x-tenant"] == "blue", arguments


@pytest.mark.full
def test_two_answers_that_take_twice_the_time_are_enough() -> None:
    with FaultyServer(raw(2.2, head(Content_Type=CLASSIC) + capture())) as server:
        flags = ("--for=1s", "--json", "--poll.timeout=9s")
        outcome = run_here("check", server.url, *flags)
    assert json.loads(outcome.out)["targets"][0]["engines"][0]["windows"]
