"""`check`: the real command against a server that plays recorded answers."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jsonschema
import pytest

from golden.cases import from_zero, recorded
from prometheus.replay import ReplayServer, Reply, series
from statuspage.examples import HEALTHY, PAGES, POOR, engine, page_of, target
from support.commands import Outcome, run, run_in_terminal
from support.exporter import exporter
from support.ports import free_port
from support.programs import COMMAND, clean_environment
from vllm_specdec_exporter import ExporterResult, get_metrics, report, snapshot
from vllm_specdec_exporter.check import exit_code

if TYPE_CHECKING:
    from collections.abc import Iterator

PHASES, NOSPEC = series("ngram-phases"), series("nospec")
ESCAPE = "\x1b"
_AT_ONCE = 4
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Case:
    """What a server answers, the last reply for ever, and what `check` makes of it."""

    replies: tuple[Reply | bytes, ...]
    code: int
    activity: str
    findings: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


def _from_zero(name: str) -> tuple[bytes, ...]:
    return tuple(answer.body for answer in from_zero(recorded(name)))


def _one_of_two_poor() -> tuple[bytes, bytes]:
    """Two engines, of which one has all its drafts rejected."""
    first, last = series("dp2")[3].decode(), series("dp2")[25].decode()
    accepted = re.compile(r'^vllm:spec_decode_num_accepted\w+\{engine="1".*\n', re.MULTILINE)
    stuck = iter(accepted.findall(first))
    return first.encode(), accepted.sub(lambda _: next(stuck), last).encode()


_CONFIG = json.dumps({"method": "eagle3", "model": "a/draft", "num_speculative_tokens": 3})

JUDGED = {
    "fair": Case((PHASES[3], PHASES[27]), 0, "active", ("hint: drafts hold 3.5 of K=4 tokens on average",)),
    "poor": Case(
        (PHASES[30], PHASES[60]), 1, "active", ("problem: the first drafted token is rejected in ",)
    ),
    "bypassed": Case(
        (NOSPEC[2], NOSPEC[10]),
        1,
        "bypassed",
        ("problem: speculation is bypassed: ", "K schedule"),
        ("--spec.config", _CONFIG),
    ),
    "off": Case(
        (NOSPEC[2], NOSPEC[10]),
        3,
        "off",
        ("hint: speculation is off: ", "--speculative-config", "--spec.config"),
    ),
    "idle": Case((PHASES[68], PHASES[78]), 3, "idle", ("hint: nothing was generated in the last 1s",)),
    "few-drafts": Case(
        (PHASES[60], PHASES[64]), 3, "warming_up", ("hint: too little to judge by: 3 drafts in the last 1s",)
    ),
    "few-are-enough": Case(
        (PHASES[60], PHASES[64]), 1, "active", ("problem: ",), ("--threshold", "minimum_drafts=2")
    ),
    "v0": Case(
        _from_zero("upstream/vllm-v0-k5.txt"),
        3,
        "unknown",
        ("hint: vLLM V0 shows means over its whole life",),
    ),
    "two-engines": Case((series("dp2")[3], series("dp2")[25]), 0, "active"),
    "llamacpp": Case(_from_zero("upstream/llamacpp-k4.txt"), 0, "active"),
    "diffusion": Case(
        _from_zero("upstream/vllm-diffusion.txt"),
        3,
        "off",
        ("hint: a diffusion model: its denoising steps are not speculative decoding Nothing is to be done",),
    ),
    "within-a-request": Case(
        (recorded("upstream/llamacpp-k4.txt"),),
        3,
        "warming_up",
        ("hint: too little to judge by: requests are running, and the server counts them when they end",),
    ),
    "all-rejected": Case((PHASES[31], PHASES[60]), 1, "active", ("rejected in 100% of the drafts",)),
    "one-of-two-poor": Case(_one_of_two_poor(), 1, "active", ("problem: the first drafted token",)),
}

#: Results and what a script should know of them.
CODES = {
    "healthy": 0,
    "varying": 0,
    "marginal": 0,
    "decrease": 0,
    "measured": 0,
    "poor": 1,
    "disable": 1,
    "measured_harmful": 1,
    "bypassed": 1,
    "idle": 3,
    "off": 3,
    "v0": 3,
    "warming_up": 3,
    "just_started": 3,
    "no_engines": 3,
    "down": 4,
    "several_targets": 4,
}

UNREACHABLE = {
    "status": (Reply(b"", 503), "http_status: HTTP 503"),
    "page": (Reply(b"<!doctype html><html></html>\n"), "malformed: an HTML page"),
    "other": (Reply(b"node_load1 1\n"), "unrecognized: no series of a known server"),
    "cut": (Reply(PHASES[3][:-20]), "malformed: the text ends within a line"),
    "redirect": (Reply(b"", 302, location="/elsewhere"), "redirect: "),
    "goes-down": (Reply(b"", 500), "http_status: HTTP 500"),
}


def check(*replies: Reply | bytes, flags: tuple[str, ...] = (), version: str = "0.32.0") -> Outcome:
    with ReplayServer(replies, version=version) as server:
        return run("check", server.url, "--for", "1s", *flags)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """Every case, run once, a few at a time."""

    def one(name: str) -> Outcome:
        if name in JUDGED:
            return check(*JUDGED[name].replies, flags=JUDGED[name].flags)
        reply = UNREACHABLE[name][0]
        return check(*((PHASES[3], reply) if name == "goes-down" else (reply,)))

    names = [*JUDGED, *UNREACHABLE]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


# --- exit codes and findings


@pytest.mark.parametrize("name", JUDGED)
def test_the_exit_code_tells_a_script_how_it_stands(outcomes: dict[str, Outcome], name: str) -> None:
    """0 active and not losing, 1 losing or bypassed, 3 not to be judged; nothing on standard error."""
    assert (JUDGED[name].code, "") == (outcomes[name].code, outcomes[name].err)


@pytest.mark.parametrize("name", JUDGED)
def test_the_report_says_what_is_wrong(outcomes: dict[str, Outcome], name: str) -> None:
    """The activity stands in the report, and so do the findings."""
    out = " ".join(outcomes[name].out.split())
    assert f"activity {JUDGED[name].activity} (" in out
    assert [text for text in JUDGED[name].findings if text not in out] == []


@pytest.mark.parametrize("name", JUDGED)
def test_quality_is_judged_only_where_speculation_is_active(outcomes: dict[str, Outcome], name: str) -> None:
    """Whatever is not active has no level."""
    assert (JUDGED[name].activity == "active") == ("\n    quality   " in outcomes[name].out)


@pytest.mark.parametrize("name", [n for n, case in JUDGED.items() if case.code == 1])
def test_a_problem_is_called_one(outcomes: dict[str, Outcome], name: str) -> None:
    """Exit code 1 always comes with at least one problem in the report."""
    assert "\n    problem: " in outcomes[name].out


def test_a_diffusion_model_is_not_told_to_switch_speculation_on(outcomes: dict[str, Outcome]) -> None:
    """It cannot speculate in this sense, so the usual advice would send its operator astray."""
    assert "--speculative-config" not in outcomes["diffusion"].out


@pytest.mark.parametrize("name", UNREACHABLE)
def test_a_server_that_gives_no_metrics_ends_with_4(outcomes: dict[str, Outcome], name: str) -> None:
    """The report names the reason, as the metrics do; a server lost on the way counts too."""
    assert outcomes[name].code == 4
    assert "cannot be judged" in outcomes[name].out
    assert UNREACHABLE[name][1] in outcomes[name].out


def test_a_server_that_does_not_listen_ends_with_4_at_once() -> None:
    """Nobody waits for the whole watch when the first poll already failed."""
    outcome = run("check", f"http://127.0.0.1:{free_port()}", "--for", "59m")
    assert outcome.code == 4
    assert "refused: nothing listens at the address" in outcome.out


@pytest.mark.parametrize("name", CODES)
def test_the_exit_code_goes_by_payoff(name: str) -> None:
    """Whether it loses counts, not what the rubric calls it: poor acceptance that pays is no problem."""
    assert exit_code(PAGES[name]) == CODES[name]


@pytest.mark.parametrize(("shares", "code"), [(HEALTHY, 0), (POOR, 1)])
def test_the_exit_code_goes_by_quality_where_payoff_is_not_known(
    shares: tuple[float, ...], code: int
) -> None:
    """A server that does not tell its load can still be called poor."""
    only = engine(shares, running=None)
    assert only.payoff.verdict is None
    assert exit_code(page_of(target(only))) == code


def test_what_pays_is_poor_by_the_rubric_in_one_of_these() -> None:
    """The case that tells both apart is really among them."""
    (only,) = PAGES["decrease"].targets[0].engines
    assert (only.quality.level, only.payoff.verdict) == ("poor", "beneficial")


USAGE = {
    "a duration without unit": (("--for", "10"), '--for "10": a duration needs a unit'),
    "too short": (("--for", "100ms"), '--for "100ms": allowed: from 1s to 1h'),
    "too long": (("--for", "2h"), '--for "2h": allowed: from 1s to 1h'),
    "no address": (("ftp://x",), 'URL "ftp://x": not an address; allowed: http://host:port'),
    "two servers": (("http://a", "http://b"), "unrecognized arguments: http://b"),
    "the flag of serve": (("--vllm.url", "http://a"), "unrecognized arguments: --vllm.url"),
    "bad JSON": (("--spec.config", "{"), '--spec.config "{": not JSON'),
    "unknown threshold": (("--threshold", "x=1"), "unknown threshold 'x'; most like it: "),
    "unknown flag": (("--nonsense",), "unrecognized arguments: --nonsense"),
    "unknown choice": (("--color", "purple"), "argument --color: invalid choice: 'purple'"),
    "a missing baseline": (("--baseline.file", "/nowhere"), '--baseline.file "/nowhere": cannot be read'),
    "no baseline": (("--baseline.file", "/dev/null"), '--baseline.file "/dev/null": not JSON'),
    "unknown profile": (("--cost.profile", "free"), '--cost.profile "free": no such profile; known: auto'),
    "no profiles": (("--cost.file", "/dev/null"), '--cost.file "/dev/null": '),
    "half a memory": (
        ("--cost.gpu-memory", "80GB"),
        "--cost.draft-memory and --cost.gpu-memory go together",
    ),
    "a missing file": (("--vllm.ca-file", "/nowhere"), '--vllm.ca-file "/nowhere": cannot be read'),
}


@pytest.mark.parametrize("name", USAGE)
def test_bad_usage_ends_with_2_and_one_line(name: str) -> None:
    """The line names the flag and the value, and says what is allowed."""
    flags, message = USAGE[name]
    outcome = run("check", *flags)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("vllm-specdec-exporter check: error: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_bad_address_is_called_what_the_user_gave() -> None:
    """Who gave a URL as argument is not told about a flag that he did not use."""
    assert "--vllm.url" not in run("check", "ftp://x").err


VARIABLE = "VLLM_SPECDEC_EXPORTER_VLLM_URL"
IN_THE_ENVIRONMENT = {
    "no address": ("ftp://x", f'{VARIABLE} "ftp://x": not an address; allowed: http://host:port'),
    "several servers": ("http://a,http://b", "check looks at one server; give one URL"),
}


@pytest.mark.parametrize("name", IN_THE_ENVIRONMENT)
def test_a_bad_address_in_the_environment_is_named_with_its_variable(name: str) -> None:
    """Where the server comes from the environment, that is what the line names."""
    value, message = IN_THE_ENVIRONMENT[name]
    outcome = run("check", **{VARIABLE: value})
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"vllm-specdec-exporter check: error: {message}")
    assert outcome.err.count("\n") == 1


def test_the_address_may_come_from_the_environment() -> None:
    """It counts where no URL is given, and only there."""
    here, there = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    assert run("check", **{VARIABLE: there}).out.startswith(f"{there} cannot be judged\n")
    assert run("check", here, **{VARIABLE: there}).out.startswith(f"{here} cannot be judged\n")


# --- the table


def increases(name: str) -> dict[str, float]:
    """The increases of vLLM's counters from the first to the last answer of a case."""
    before, after = (
        {
            series: float(value)
            for series, value in re.findall(r"^vllm:(\S+?_total\{\S*\}) (\S+)$", body.decode(), re.MULTILINE)
        }
        for body in JUDGED[name].replies
        if isinstance(body, bytes)
    )
    by_name = {}
    for series_name, value in after.items():
        position = re.search(r'position="(\d+)"', series_name)
        short = series_name.partition("{")[0].removeprefix("spec_decode_num_").removesuffix("_total")
        by_name[short + (position[1] if position else "")] = value - before[series_name]
    return by_name


def load(name: str, state: str) -> str:
    """The requests in a state, from the last answer of a case."""
    body = JUDGED[name].replies[-1]
    assert isinstance(body, bytes)
    (value,) = re.findall(rf"^vllm:num_requests_{state}\{{.*\}} (.*)$", body.decode(), re.MULTILINE)
    return f"{float(value):.0f}"


def rows(report: str) -> dict[str, str]:
    """The rows of the table, by their name."""
    return dict(re.findall(r"^    (\S.{22}) ?(\S.*)$", report, re.MULTILINE))


@pytest.mark.parametrize("name", ["fair", "poor"])
def test_the_table_holds_the_increases_of_the_watch(outcomes: dict[str, Outcome], name: str) -> None:
    """The values are those of vLLM's counters between the first and the last poll."""
    found = increases(name)
    table = {key.strip(): value for key, value in rows(outcomes[name].out).items()}
    drafts, accepted = found["drafts"], found["accepted_tokens"]
    expected = {
        "drafts": f"{drafts:,.0f}",
        "acceptance ratio": f"{accepted / found['draft_tokens']:.1%}",
        "mean acceptance length": f"{1 + accepted / drafts:.2f}",
        "mean draft length": f"{found['draft_tokens'] / drafts:.2f}",
        "tokens out of drafts": f"{(accepted + drafts) / found['generation_tokens']:.1%}",
        "requests running": load(name, "running"),
        "requests waiting": load(name, "waiting"),
    }
    assert expected == {key: table.get(key) for key in expected}


@pytest.mark.parametrize("name", ["fair", "poor"])
def test_each_position_has_a_row(outcomes: dict[str, Outcome], name: str) -> None:
    """Its acceptance of all drafts, of those before, the mean length up to it, and a bar as long."""
    found = increases(name)
    lines = re.findall(
        r"^ +(\d) +([\d.]+%) +([\d.]+%|–) +([\d.]+)(?: +[\d.]+x)?(?: +(█+))? *$",
        outcomes[name].out,
        re.MULTILINE,
    )
    expected, length, before = [], 1.0, 1.0
    for position in range(4):
        ratio = found[f"accepted_tokens_per_pos{position}"] / found["drafts"]
        length += ratio
        conditional = f"{ratio / before:.1%}" if before else "–"
        expected.append(
            (str(position), f"{ratio:.1%}", conditional, f"{length:.2f}", "█" * round(ratio * 30))
        )
        before = ratio
    assert expected == lines


def test_the_verdict_stands_above_all_else(outcomes: dict[str, Outcome]) -> None:
    """The address, the answer in a line, and then what was looked at: engine, dialect, version and K."""
    found = increases("fair")
    ratio = found["accepted_tokens"] / found["draft_tokens"]
    length = 1 + found["accepted_tokens"] / found["drafts"]
    head = outcomes["fair"].out.splitlines()[:6]
    drafted = float(rows(outcomes["fair"].out)["estimated speedup".ljust(23)].split("x ")[0])
    covered = float(rows(outcomes["fair"].out)["tokens out of drafts".ljust(23)].rstrip("%")) / 100
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", head[0])
    answer = " ".join(head[1].split() + head[2].split())
    speedup = answer.removeprefix("BENEFICIAL tiny-llama, engine 0: ").split()[0]
    # Of all tokens: those that did not come out of drafts gain nothing (Amdahl).
    assert float(speedup) == pytest.approx(1 / (covered / drafted + 1 - covered), abs=0.01)
    assert answer == (
        f"BENEFICIAL tiny-llama, engine 0: {speedup} times as fast as without speculation (estimated), "
        f"{ratio:.1%} of the drafted tokens accepted, {length:.2f} tokens a draft"
    )
    assert head[3:] == [
        "",
        "  tiny-llama, engine 0 (dialect vllm-v1, version 0.32.0, K 4)",
        "",
    ]


VERDICTS = {
    "poor": ["HARMFUL  tiny-llama, engine 0: 0."],
    "bypassed": ["BYPASSED  tiny-llama, engine 0: 8,560 tokens were generated in the last 1s"],
    "off": ["OFF  tiny-llama, engine 0: the server shows no sign of speculation being configured"],
    "idle": ["IDLE  tiny-llama, engine 0: nothing was generated in the last 1s"],
    "few-drafts": ["WARMING_UP  tiny-llama, engine 0: 3 drafts in the last 1s, 100 are needed"],
    "v0": ["UNKNOWN  meta-llama/Llama-3.1-8B-Instruct: vLLM V0 shows means over its whole life"],
    "two-engines": [
        "BENEFICIAL  tiny-llama, engine 0: 1.",
        "BENEFICIAL  tiny-llama, engine 1: 1.",
    ],
    "one-of-two-poor": [
        "BENEFICIAL  tiny-llama, engine 0: 1.",
        "HARMFUL  tiny-llama, engine 1: 0.",
    ],
    "llamacpp": ["BENEFICIAL  the only engine: 1."],
    "diffusion": ["OFF  example/diffusion-llm, engine 0: a diffusion model: its denoising steps are"],
}


@pytest.mark.parametrize("name", VERDICTS)
def test_every_engine_has_its_verdict(outcomes: dict[str, Outcome], name: str) -> None:
    """One line for each stands on top, whatever there is to say of it."""
    verdicts = re.findall(r"^  ([A-Z_]{3,}  \S.*)$", outcomes[name].out, re.MULTILINE)
    above = re.findall(r"^  (\S.*)$", outcomes[name].out.partition("\n\n")[0], re.MULTILINE)
    assert verdicts == above
    assert [line.startswith(start) for line, start in zip(above, VERDICTS[name], strict=True)] == [
        True
    ] * len(above)


def test_every_engine_has_its_report(outcomes: dict[str, Outcome]) -> None:
    """Two engines, two heads, two tables."""
    out = outcomes["two-engines"].out
    assert [f"\n  tiny-llama, engine {n} (dialect vllm-v1, " in out for n in (0, 1)] == [True, True]
    assert out.count("mean acceptance length  ") == 2


def test_the_gravest_engine_decides(outcomes: dict[str, Outcome]) -> None:
    """One engine that is poor makes the exit code 1, whatever the others do."""
    outcome = outcomes["one-of-two-poor"]
    assert outcome.code == 1
    assert "quality   poor" in outcome.out
    assert re.search(r"quality   (fair|optimal)", outcome.out)


# --- JSON


@pytest.fixture(scope="module")
def still_server() -> Iterator[ReplayServer]:
    """A server whose counters stand still."""
    with ReplayServer([PHASES[-1]]) as server:
        yield server


def test_json_is_the_snapshot(still_server: ReplayServer) -> None:
    """One line of valid JSON, which says of the server what the exporter's own snapshot says of it."""
    outcome = run("check", still_server.url, "--for", "1s", "--json")
    assert (outcome.code, outcome.err) == (3, "")
    jsonschema.validate(json.loads(outcome.out), snapshot.schema())
    found = snapshot.decode(outcome.out.encode())
    with exporter("--vllm.url", still_server.url) as address:
        end = time.monotonic() + 20
        while not (served := get_metrics(f"http://{address}")).targets[0].engines:
            assert time.monotonic() < end, "the exporter did not poll"
            time.sleep(0.05)
    assert known(served) == known(found)
    assert served.thresholds == found.thresholds


def known(result: ExporterResult) -> list[object]:
    """What is known of each engine, whatever the length of the watch."""
    return [
        (engine.key, engine.deployment, engine.counters, engine.load, engine.accepted_tokens_per_draft)
        for target in result.targets
        for engine in target.engines
    ]


def test_json_reads_back_as_the_report(outcomes: dict[str, Outcome]) -> None:
    """Who keeps the JSON can still have the report of it, word for word."""
    with ReplayServer(JUDGED["poor"].replies) as server:
        outcome = run("check", server.url, "--for", "1s", "--json")
    assert outcome.code == 1
    text = report.render(snapshot.decode(outcome.out.encode()))
    assert fixed(outcomes["poor"].out) == fixed(text)


def fixed(text: str) -> list[str]:
    """A report without what differs from one watch to the next."""
    text = re.sub(r"http://127\.0\.0\.1:\d+", "URL", text)
    text = re.sub(r"real span .*|tokens/s .*", "", text)
    return text.strip().splitlines()


def test_json_of_an_unreachable_server_is_a_snapshot_too() -> None:
    """Scripts get JSON in any case, with the reason in it."""
    outcome = run("check", f"http://127.0.0.1:{free_port()}", "--json")
    assert outcome.code == 4
    (target,) = snapshot.decode(outcome.out.encode()).targets
    assert target.failure is not None
    assert (target.up, target.failure.reason) == (False, "refused")


# --- colours


def coloured(*flags: str, terminal: bool, **environment: str) -> tuple[bool, Outcome]:
    with ReplayServer((PHASES[30], PHASES[60])) as server:
        start = run_in_terminal if terminal else run
        outcome = start("check", server.url, "--for", "1s", *flags, **environment)
    return ESCAPE in outcome.out, outcome


COLOUR = {
    "a terminal": (True, (), {}, True),
    "a pipe": (False, (), {}, False),
    "a terminal with NO_COLOR": (True, (), {"NO_COLOR": "1"}, False),
    "a terminal with NO_COLOR empty": (True, (), {"NO_COLOR": ""}, True),
    "a terminal, never": (True, ("--color", "never"), {}, False),
    "a pipe, always": (False, ("--color", "always"), {}, True),
    "a pipe, always, with NO_COLOR": (False, ("--color", "always"), {"NO_COLOR": "1"}, True),
    "a terminal, as JSON": (True, ("--json",), {}, False),
}


@pytest.fixture(scope="module")
def colours() -> dict[str, tuple[bool, Outcome]]:
    """Every combination, run once, a few at a time."""

    def one(name: str) -> tuple[bool, Outcome]:
        terminal, flags, environment, _ = COLOUR[name]
        return coloured(*flags, terminal=terminal, **environment)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(COLOUR, pool.map(one, COLOUR), strict=True))


@pytest.mark.parametrize("name", COLOUR)
def test_colours_are_for_terminals(colours: dict[str, tuple[bool, Outcome]], name: str) -> None:
    """Only a terminal gets escape codes, and NO_COLOR, unless it is empty, or a flag decides otherwise.

    As https://no-color.org has it: an empty NO_COLOR does not count, and a flag of the command outranks it.
    """
    assert COLOUR[name][3] == colours[name][0]
    assert colours[name][1].code == 1


def test_a_terminal_is_told_that_it_has_to_wait(colours: dict[str, tuple[bool, Outcome]]) -> None:
    """In a terminal the first line says what is being watched, and for how long."""
    first = colours["a terminal"][1].out.splitlines()[0]
    assert re.fullmatch(r"watching http://127\.0\.0\.1:\d+ for 1s \.\.\.", first)
    assert colours["a pipe"][1].err == ""


def test_without_its_colours_the_report_is_the_plain_one(colours: dict[str, tuple[bool, Outcome]]) -> None:
    """Colours add emphasis and nothing else: not a line is broken elsewhere."""
    plain, painted = colours["a pipe"][1].out, colours["a pipe, always"][1].out
    assert fixed(plain) == fixed(COLOURS.sub("", painted))


def test_a_length_of_exactly_1_is_written_like_every_other(outcomes: dict[str, Outcome]) -> None:
    """Lengths have the same decimals throughout, whatever their values; only counts are whole."""
    table = {key.strip(): value for key, value in rows(outcomes["all-rejected"].out).items()}
    assert table["mean acceptance length"] == "1.00"
    assert re.fullmatch(r"\d\.\d\d", table["mean draft length"])


@dataclass(frozen=True)
class Elsewhere:
    """What `check` said where its output, or its address, is out of the ordinary."""

    ascii: Outcome
    closed: subprocess.CompletedProcess[bytes]
    with_password: Outcome
    with_password_as_json: Outcome


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    """All of them at once; the server begins anew for each."""

    def ascii_only(url: str) -> Outcome:
        return run("check", url, "--for", "1s", PYTHONIOENCODING="ascii")

    def closed(url: str) -> subprocess.CompletedProcess[bytes]:
        script = f"'{COMMAND}' check {url} --for 1s | true; exit ${{PIPESTATUS[0]}}"
        return subprocess.run(
            ["bash", "-c", script], capture_output=True, env=clean_environment(), timeout=60
        )

    def with_password(url: str, *flags: str) -> Outcome:
        return run("check", url.replace("//", "//somebody:hunter2@"), "--for", "1s", *flags)

    def as_json(url: str) -> Outcome:
        return with_password(url, "--json")

    starts = (ascii_only, closed, with_password, as_json)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(starts)) as pool:
        servers = [stack.enter_context(ReplayServer((PHASES[3], PHASES[27]))) for _ in starts]
        jobs = [pool.submit(start, server.url) for start, server in zip(starts, servers, strict=True)]
        yield Elsewhere(*(job.result() for job in jobs))


def test_the_report_survives_a_terminal_that_knows_only_ascii(
    elsewhere: Elsewhere, outcomes: dict[str, Outcome]
) -> None:
    """Each bar and dash that it cannot show is a question mark; all else is as ever."""
    outcome = elsewhere.ascii
    assert (outcome.code, outcome.err) == (0, "")
    expected = [re.sub("[^\x00-\x7f]", "?", line) for line in fixed(outcomes["fair"].out)]
    assert fixed(outcome.out) == expected
    assert "  ???????????" in outcome.out


def test_a_reader_that_has_seen_enough_is_no_error(elsewhere: Elsewhere) -> None:
    """`check | head -1` ends without a traceback, with the code of a program that wrote to a closed pipe."""
    assert (elsewhere.closed.returncode, elsewhere.closed.stdout, elsewhere.closed.stderr) == (141, b"", b"")


def test_credentials_in_the_address_are_not_shown(elsewhere: Elsewhere) -> None:
    """Neither the report nor the JSON nor an error repeats a password."""
    shown = (elsewhere.with_password, elsewhere.with_password_as_json)
    assert [outcome.code for outcome in shown] == [0, 0]
    bad = run("check", "http://somebody:hunter2@host:99999999")
    assert (bad.code, bad.err.count('URL "http://<secret>@host:99999999": not an address')) == (2, 1)
    assert [o for o in (*shown, bad) if "hunter2" in o.out + o.err] == []


def test_a_model_name_cannot_steer_the_terminal() -> None:
    """Neither an escape sequence nor a line break out of the server's labels reaches the report."""
    replies = [
        phase.replace(b'"tiny-llama"', b'"tiny\x1b[31m\\nllama"') for phase in (PHASES[30], PHASES[60])
    ]
    with ReplayServer(replies) as server:
        outcome = run("check", server.url, "--for", "2s")
    assert "\x1b" not in outcome.out + outcome.err
    assert "tiny\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}llama" in outcome.out
