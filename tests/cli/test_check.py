"""`check`: the real command against a server that plays recorded answers."""

import argparse
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import jsonschema
import pytest

from core.test_derived import answer
from golden.cases import drafted, recorded_baseline
from prometheus.replay import ReplayServer, Reply, series
from statuspage.examples import HEALTHY, PAGES, POOR, engine, page_of, target
from support.builders import upstream
from support.commands import (
    Outcome,
    run,
    run_here,
    run_in_terminal,
    without_waiting,
    wrong_refusals,
)
from support.copies import replace
from support.exporter import running_exporter
from support.golden import golden_text
from support.ports import free_port
from support.programs import COMMAND
from vllm_specdec_exporter import ExporterResult, get_metrics
from vllm_specdec_exporter.commands import check
from vllm_specdec_exporter.commands.arguments import wants_color
from vllm_specdec_exporter.commands.check import exit_code
from vllm_specdec_exporter.economics.baseline import encode
from vllm_specdec_exporter.judgement.payoff import Payoff, PayoffVerdict
from vllm_specdec_exporter.publish import snapshot
from vllm_specdec_exporter.publish import terminal_report as report
from vllm_specdec_exporter.publish.terminal import RED, YELLOW

PHASES = series("ngram-phases")
NOSPEC = series("nospec")
FAIR = (PHASES[3], PHASES[27])
POOR_PHASE = (PHASES[30], PHASES[60])
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Case:
    """What a server answers, the last reply for ever, and what `check` makes of it."""

    replies: tuple[Reply | bytes, ...]
    code: int
    #: How the lines on top begin; without any the server cannot be judged.
    verdicts: tuple[str, ...]
    says: tuple[str, ...] = ()  # what else stands in the report
    flags: tuple[str, ...] = ()  # beside the URL


def _one_of_two_poor() -> tuple[bytes, bytes]:
    """Two engines, of which one has all its drafts rejected."""
    first = series("dp2")[3].decode()
    last = series("dp2")[25].decode()
    accepted = re.compile(
        r'^vllm:spec_decode_num_accepted\w+\{engine="1".*\n', re.MULTILINE
    )
    stuck = iter(accepted.findall(first))
    return first.encode(), accepted.sub(lambda _: next(stuck), last).encode()


_CONFIG = json.dumps(
    {"method": "eagle3", "model": "a/draft", "num_speculative_tokens": 3}
)
_FEW = (PHASES[60], PHASES[64])

#: SGLang's trees of 15 tokens in four steps, of which 0.9 are accepted.
_TREES = tuple(
    answer(requests, 40 * requests, 36 * requests, k=15, spec_num_steps=4)
    for requests in (800, 1600)
)

#: A profile of one kind of machine, so that there is a verdict.
MACHINE = ("--cost.profile=chinchilla-70b-draft-4b",)

CASES = {
    "machine-not-known": Case(
        FAIR,
        3,
        ("UNKNOWN  tiny-llama, engine 0: 0.",),
        says=(
            "hint: it is not known whether speculation pays: ",
            "Give --cost.hardware, run",
        ),
        flags=("--cost.profile=auto",),
    ),
    "fair": Case(
        FAIR,
        0,
        ("BENEFICIAL  tiny-llama, engine 0: ",),
        says=("activity active (", "hint: drafts hold 3.5 of K=4 tokens on average"),
    ),
    "poor": Case(
        POOR_PHASE,
        1,
        ("HARMFUL  tiny-llama, engine 0: 0.",),
        says=("activity active (", "problem: the first drafted token is rejected in "),
    ),
    "bypassed": Case(
        (NOSPEC[2], NOSPEC[10]),
        1,
        ("BYPASSED  tiny-llama, engine 0: 8,560 tokens were generated in the last 1s",),
        says=(
            "activity bypassed (",
            "problem: speculation is bypassed: ",
            "K schedule",
        ),
        flags=("--spec.config", _CONFIG),
    ),
    "off": Case(
        (NOSPEC[2], NOSPEC[10]),
        3,
        (
            (
                "OFF  tiny-llama, engine 0: the server shows no sign of speculation "
                "being configured"
            ),
        ),
        says=(
            "activity off (",
            "hint: speculation is off: ",
            "--speculative-config",
            "--spec.config",
        ),
    ),
    "few-drafts": Case(
        _FEW,
        3,
        ("WARMING_UP  tiny-llama, engine 0: 3 drafts in the last 1s, 100 are needed",),
        says=(
            "activity warming_up (",
            "hint: too little to judge by: 3 drafts in the last 1s",
        ),
    ),
    "few-are-enough": Case(
        _FEW,
        1,
        ("HARMFUL  ",),
        says=("problem: ",),
        flags=("--threshold=minimum_drafts=2", *MACHINE),
    ),
    "within-a-request": Case(
        (upstream("llamacpp-k4.txt"),),
        3,
        ("WARMING_UP  ",),
        says=("requests are running, and the server counts them when they end",),
    ),
    "trees": Case(
        _TREES,
        3,
        ("UNKNOWN  tiny-llama: 0.7",),
        says=("mean acceptance length 1.90", "mean draft length –"),
        flags=(
            "--cost.hardware=h100",
            "--cost.model=8b",
            '--spec.config={"method": "eagle3"}',
        ),
    ),
    "one-of-two-poor": Case(
        _one_of_two_poor(),
        1,
        ("BENEFICIAL  tiny-llama, engine 0: ", "HARMFUL  tiny-llama, engine 1: 0."),
        says=("quality poor",),
    ),
    "cut": Case(
        (Reply(PHASES[3][:-20]),),
        4,
        (),
        says=("malformed: the text ends within a line",),
    ),
    "goes-down": Case(
        (PHASES[3], Reply(b"", 500)), 4, (), says=("http_status: HTTP 500",)
    ),
    "hostile": Case(
        tuple(
            phase.replace(b'"tiny-llama"', b'"tiny\x1b[31m\\nllama"')
            for phase in POOR_PHASE
        ),
        1,
        ("HARMFUL  tiny\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}llama",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_exit_code_and_report_tell_how_it_stands(name: str) -> None:
    """0 active and not losing, 1 losing or bypassed, 3 not to be judged, 4 no metrics.

    Each engine has its verdict on top; a problem is called one, only what is active has
    a quality, and nothing out of the server's labels steers the terminal.
    """
    case = CASES[name]
    with ReplayServer(case.replies, version="0.32.0") as server, without_waiting(check):
        outcome = run_here("check", server.url, "--for=1s", *(case.flags or MACHINE))
    assert outcome.code == case.code
    assert outcome.err == ""
    assert "\x1b" not in outcome.out
    text = " ".join(outcome.out.split())
    assert [said for said in case.says if said not in text] == []
    if case.code == 4:
        assert "cannot be judged" in text
        return
    above = re.findall(r"^  (\S.*)$", outcome.out.partition("\n\n")[0], re.MULTILINE)
    verdicts = [line for line in above if re.match("[A-Z_]{3,}(  | [A-Z(])", line)]
    starts = zip(verdicts, case.verdicts, strict=True)
    assert [line for line, start in starts if not line.startswith(start)] == []
    # One thing to do for each verdict, and the rules of thumb are folded.
    assert len(re.findall("^    to do  ", outcome.out, re.MULTILINE)) == len(verdicts)
    assert "(disable below" not in outcome.out
    assert ("\n    problem: " in outcome.out) == (case.code == 1)
    assert ("\n    quality   " in outcome.out) == ("activity active (" in text)


def test_a_server_that_does_not_listen_ends_with_4_at_once() -> None:
    """Nobody waits for the whole watch when the first poll already failed."""
    nowhere = f"http://127.0.0.1:{free_port()}"
    outcome = run_here("check", nowhere, "--for=59m", "--json")
    assert outcome.code == 4
    (target,) = snapshot.decode(outcome.out.encode()).targets
    assert target.up is False
    assert target.failure.reason == "refused"


# --- what the verdict rests on


_SIZED = ("--cost.hardware", "4xh100", "--spec.config", _CONFIG)
_GOOD = (0.9, 0.7, 0.4)
_FAIR = (0.5, 0.2, 0.05)
_BAD = (0.1, 0.01, 0.001)
#: As `calibrate` writes it.
_PROFILE = """
profiles:
  mine:
    {unit: milliseconds, basis: calibrated, uncertainty: 0.09,
     batches: [1, 16], contexts: [500, 2000],
     target: {fixed: 12, per_request: 0.1}, draft: {fixed: 2, per_position: 3}}
"""
#: By golden report: what the server answers, the flags, and a file that the last of
#: them names.
BASES = {
    "modelled": ((drafted(1e3, 8, _GOOD), drafted(2e4, 8, _GOOD)), _SIZED, ""),
    "observed": (
        (drafted(1e3, 8, _FAIR, 75.0), drafted(2e4, 8, _FAIR, 1500.0)),
        _SIZED,
        "",
    ),
    "likely-harmful": ((drafted(1e3, 8, _BAD), drafted(2e4, 8, _BAD)), _SIZED, ""),
    "calibrated": (
        (drafted(1e3, 8, _GOOD), drafted(2e4, 8, _GOOD)),
        ("--spec.config", _CONFIG, "--cost.file"),
        _PROFILE,
    ),
    "measured": (
        FAIR,
        ("--spec.config", '{"method": "ngram"}', "--baseline.file"),
        encode(recorded_baseline()).decode(),
    ),
}


@pytest.mark.parametrize("name", BASES)
def test_a_report_for_each_basis(name: str, tmp_path: Path) -> None:
    """`UPDATE_GOLDEN=1 pytest tests/cli` writes the files anew; read them as somebody
    who is on call.
    """
    replies, flags, text = BASES[name]
    if text:
        (tmp_path / "file").write_text(text)
        flags += (str(tmp_path / "file"),)
    with ReplayServer(replies, version="0.32.0") as server, without_waiting(check):
        outcome = run_here("check", server.url, "--for=1m", *flags)
    assert outcome.err == ""
    text = outcome.out.replace(server.url, "http://vllm:8000")
    assert golden_text(Path(__file__).parent / "bases" / f"{name}.txt", text) == text


# --- the exit code


#: Results and what a script should know of them.
CODES = {
    0: ("healthy", "varying", "marginal", "decrease", "measured"),
    1: ("poor", "disable", "measured_harmful", "bypassed"),
    3: (
        "payoff_unknown",
        "idle",
        "off",
        "v0",
        "warming_up",
        "just_started",
        "no_engines",
    ),
    4: ("down", "several_targets"),
}


def test_the_exit_code_goes_by_payoff_and_by_quality_where_payoff_is_not_known() -> (
    None
):
    """Whether it loses counts, not what the rubric calls it: poor acceptance that pays
    is no problem.
    """
    for code, names in CODES.items():
        codes = {name: exit_code(PAGES[name]) for name in names}
        assert codes == dict.fromkeys(names, code)
    (paying,) = PAGES["decrease"].targets[0].engines
    assert paying.quality.level == "poor"
    assert paying.payoff.verdict == "beneficial"
    # A server that does not tell its load can still be called poor, but not fine.
    for shares, code in ((HEALTHY, 3), (POOR, 3)):
        only = engine(shares, running=None)
        assert only.payoff.verdict is None, shares
        assert exit_code(page_of(target(only))) == code, shares
        likely = replace(
            only, payoff=Payoff(PayoffVerdict.UNKNOWN, likely=PayoffVerdict.HARMFUL)
        )
        assert exit_code(page_of(target(likely))) == 1, shares
        unknown = replace(only, payoff=Payoff(PayoffVerdict.UNKNOWN))
        assert exit_code(page_of(target(unknown))) == 3, shares
    # Of an unknown verdict, which way it leans.
    healthy = engine(HEALTHY, running=None)
    for leaning, code in ((PayoffVerdict.BENEFICIAL, 0), (None, 3)):
        unknown = Payoff(PayoffVerdict.UNKNOWN, likely=leaning)
        assert exit_code(page_of(target(replace(healthy, payoff=unknown)))) == code
    # Nothing is drafted, and a K schedule says so: no problem, neither in the code nor
    # in the colour.
    (bypassed,) = PAGES["bypassed"].targets[0].engines
    scheduled = replace(bypassed, activity=replace(bypassed.activity, scheduled=True))
    for judged, code, colour in ((bypassed, 1, RED), (scheduled, 3, YELLOW)):
        page = page_of(target(judged))
        assert exit_code(page) == code, colour
        assert (
            report.render(page, colour=True)
            .splitlines()[1]
            .startswith(f"  \x1b[{colour}mBYPASSED")
        ), colour


# --- usage


def test_an_address_that_cannot_be_used_is_one_line() -> None:
    """The line names the variable and the value, and says what is allowed.

    Flags: tests/service/usage.yml.
    """
    named = (
        ["dns+http://vllm:8000"],
        '"dns+http://vllm:8000": only serve finds servers by a name\n',
    )
    assert wrong_refusals("check", [named]) == []
    variable = "VLLM_SPECDEC_EXPORTER_VLLM_URL"
    bad = f'{variable} "ftp://x": not an address; allowed: http://host:port'
    assert wrong_refusals("check", [((), bad)], **{variable: "ftp://x"}) == []


def test_the_address_may_come_from_the_environment() -> None:
    """It counts where no URL is given, and only there."""
    here, there = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    variable = {"VLLM_SPECDEC_EXPORTER_VLLM_URL": there}
    assert run_here("check", **variable).out.startswith(f"{there} cannot be judged\n")
    assert run_here("check", here, **variable).out.startswith(
        f"{here} cannot be judged\n"
    )


# --- JSON


def known(result: ExporterResult) -> list[object]:
    """What is known of each engine, whatever the length of the watch."""
    return [
        (
            engine.key,
            engine.deployment,
            engine.counters,
            engine.load,
            engine.accepted_tokens_per_draft,
        )
        for target in result.targets
        for engine in target.engines
    ]


def test_json_is_the_snapshot() -> None:
    """One line of valid JSON, which says of the server what the exporter's own snapshot
    says of it.
    """
    with ReplayServer([PHASES[-1]]) as server:
        with without_waiting(check):
            outcome = run_here("check", server.url, "--for=1s", "--json")
        with running_exporter("--vllm.url", server.url) as exporter:
            exporter.wait_until_up()
            served = get_metrics(exporter.url)
    assert outcome.code == 3
    assert outcome.err == ""
    assert outcome.out.count("\n") == 1
    jsonschema.validate(json.loads(outcome.out), snapshot.schema())
    printed = snapshot.decode(outcome.out.encode())
    assert known(served) == known(printed)
    assert served.thresholds == printed.thresholds


def fixed(text: str) -> list[str]:
    """A report without what differs from one watch to the next."""
    text = re.sub(r"http://127\.0\.0\.1:\d+", "URL", text)
    text = re.sub(r"real span .*|tokens/s .*", "", text)
    return text.strip().splitlines()


# --- where the output goes


@pytest.mark.parametrize(
    ("flag", "terminal", "no_color", "coloured"),
    [
        ("auto", True, None, True),
        ("auto", False, None, False),
        ("auto", True, "1", False),
        ("auto", True, "", True),
        ("never", True, None, False),
        ("always", False, "1", True),
    ],
)
def test_colours_are_for_terminals(
    monkeypatch: pytest.MonkeyPatch,
    flag: str,
    terminal: bool,
    no_color: str | None,
    coloured: bool,
) -> None:
    """As https://no-color.org has it: an empty NO_COLOR does not count, and a flag
    outranks it.
    """
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    with mock.patch("sys.stdout", mock.Mock(isatty=lambda: terminal)):
        assert wants_color(argparse.Namespace(color=flag)) is coloured


def test_the_report_has_the_same_words_everywhere() -> None:
    """Without its colours, out of its JSON, and with a question mark for what ASCII
    does not have.

    A terminal is told before what is being watched, and for how long; nobody is told
    the password.
    """

    def shown(start: Callable[..., Outcome], *flags: str, **environment: str) -> str:
        with ReplayServer(POOR_PHASE, version="0.32.0") as server:
            url = server.url.replace("//", "//somebody:hunter2@")
            command = ("check", url, "--for=1s", *MACHINE, *flags)
            outcome = start(*command, **environment)
        assert outcome.code == 1
        assert outcome.err == ""
        assert "hunter2" not in outcome.out
        return outcome.out

    with ThreadPoolExecutor(3) as pool:
        terminal = pool.submit(shown, run_in_terminal)
        as_json = pool.submit(shown, run_in_terminal, "--json")
        in_ascii = pool.submit(shown, run, PYTHONIOENCODING="ascii")
    message, _, painted = terminal.result().partition("\n")
    assert re.fullmatch(r"watching http://127\.0\.0\.1:\d+ for 1s \.\.\.", message)
    plain = fixed(COLOURS.sub("", painted))
    assert plain != fixed(painted)
    document = as_json.result().partition("\n")[2]
    assert "\x1b" not in document
    assert fixed(report.render(snapshot.decode(document.encode()))) == plain
    assert fixed(in_ascii.result()) == [
        re.sub("[^\x00-\x7f]", "?", line) for line in plain
    ]


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """`check | head -1` ends without a traceback, with the code of a program that wrote
    to a closed pipe.
    """
    with ReplayServer(FAIR) as server:
        script = (
            f"'{COMMAND}' check {server.url} --for 1s | true; exit ${{PIPESTATUS[0]}}"
        )
        outcome = run("-c", script, command=("bash",))
    assert outcome == Outcome(141, "", "")
