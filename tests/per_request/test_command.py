"""`requests`: the real command on files of recorded answers."""

import json
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from per_request.results import few
from per_request.traffic import CHAT, CODE, MIXED, MODEL, PROFILE, Kind, pairs
from support.builders import requests
from support.commands import Outcome, run_here
from support.programs import COMMAND, clean_environment
from vllm_specdec_exporter.per_request.summary import ModelRequests
from vllm_specdec_exporter.publish import snapshot

TYPED = ("--requests.type-header", "X-Kind")
MALICIOUS = "evil\x1b[31m\nname\u202e"


def lines_of(entries: Iterable[Any]) -> str:
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """60 % of the requests at an acceptance of 82 %, 40 % at one of 38 %."""
    path = tmp_path_factory.mktemp("recorded") / "mixed.jsonl"
    path.write_text(lines_of(pairs(MIXED)))
    return str(path)


@cache
def called(*words: str) -> Outcome:
    """Call the command within this process, once for these words: no test writes a file
    anew.
    """
    return run_here("requests", *words)


def words_of(outcome: Outcome) -> str:
    return " ".join(outcome.out.split())


def models(outcome: Outcome) -> tuple[ModelRequests, ...]:
    published = snapshot.decode(outcome.out.encode()).requests
    return published.models


# --- exit codes

CODES: dict[str, tuple[tuple[Kind, ...], tuple[str, ...], int, str]] = {
    "all gain": ((CODE,), (), 0, "GAINING"),
    "near break-even": (
        (few(replace(CODE, chance=0.81), 200),),
        (),
        0,
        "NEAR BREAK-EVEN",
    ),
    "mixed": (MIXED, (), 1, "MIXED"),
    "all lose": ((CHAT,), (), 1, "LOSING"),
    "some lose": ((CODE, few(CHAT, 90)), (), 1, "PARTLY LOSING"),
    "few": ((few(CODE, 30),), (), 3, "UNKNOWN"),
    "other thresholds": (
        (CHAT,),
        (
            "--threshold",
            "disable_acceptance_ratio=0.1",
            "--threshold",
            "poor_request_acceptance_ratio=0.1",
        ),
        0,
        "NEAR BREAK-EVEN",
    ),
    "the gravest of two": ((few(CODE, 10), replace(CHAT, model="b")), (), 1, "LOSING"),
}


@pytest.mark.parametrize("name", CODES)
def test_the_exit_code_tells_a_script_how_it_stands(name: str, tmp_path: Path) -> None:
    """0 nobody loses, 1 a part does, 3 it cannot be judged: of several models the
    gravest.
    """
    kinds, flags, code, word = CODES[name]
    path = tmp_path / "file"
    path.write_text(lines_of(pairs(kinds)))
    outcome = called(str(path), *flags)
    assert (outcome.code, outcome.err) == (code, "")
    assert f"\n  {word}  " in outcome.out
    assert ("    problem: " in outcome.out) == (code == 1)


def test_hints_about_a_file_name_no_window(tmp_path: Path) -> None:
    """A file has no window, and nobody is going to write more into it."""
    path = tmp_path / "file"
    path.write_text(
        lines_of(
            [
                *pairs((few(CODE, 30),)),
                *[{"model": MODEL, "choices": [{"index": 0}]}] * 20,
            ]
        )
    )
    text = words_of(called(str(path)))
    assert (
        "30 requests had something drafted, 50 are needed to judge them one by one"
        in text
    )
    assert (
        "Record more requests, or lower the limit: --threshold minimum_requests=NUMBER."
        in text
    )
    assert "20 of 50 requests (40%) had no record of speculation" in text
    assert "window" not in text


def test_a_file_with_nothing_to_use_cannot_be_judged(tmp_path: Path) -> None:
    """It says so, and why each of its lines is of no use."""
    path = tmp_path / "file"
    path.write_text('nothing\n{"messages": []}\n{"error": {"message": "x"}}\n')
    outcome = called(str(path))
    assert (outcome.code, outcome.err) == (3, "")
    assert outcome.out.splitlines() == [
        f"{path}: 3 entries",
        "  entries   1 not used: not JSON: each line has one object (first: line 1)",
        "  entries   1 not used: a request without its response (first: line 2)",
        "  entries   1 not used: the request failed (first: line 3)",
        "  records   no request was observed",
    ]


def sglang(histogram: list[int], proposed: int) -> dict[str, Any]:
    """An answer of SGLang that was `proposed` tokens for each draft."""
    drafts = sum(histogram)
    accepted = sum(index * number for index, number in enumerate(histogram))
    counts = {
        "completion_tokens": 1 + drafts + accepted,
        "spec_verify_ct": drafts,
        "spec_num_correct_drafts": accepted,
        "spec_num_proposed_drafts": drafts * proposed,
        "spec_correct_drafts_histogram": histogram,
    }
    return {"model": "m", "text": "x", "meta_info": counts}


@pytest.mark.parametrize(
    ("histogram", "proposed", "code", "word"),
    [
        pytest.param([2, 8, 20, 70], 3, 0, "GAINING", id="a chain of 3"),
        pytest.param(
            [2, 8, 20, 70], 8, 3, "UNKNOWN", id="a tree of 3 steps and 8 nodes"
        ),
        pytest.param([10, 90], 3, 3, "UNKNOWN", id="one step of the configured 3"),
        pytest.param([96, 4], 5, 1, "LOSING", id="a collapsed chain"),
        pytest.param([100], 3, 1, "LOSING", id="nothing is accepted"),
    ],
)
def test_sglang_writes_the_configured_number_of_drafted_tokens(
    histogram: list[int], proposed: int, code: int, word: str, tmp_path: Path
) -> None:
    """Where drafts are shorter, as those of trees and of an adaptive K are, nobody is
    said to lose by it.
    """
    path = tmp_path / "file"
    path.write_text(lines_of([sglang(histogram, proposed)] * 60))
    outcome = called(str(path))
    assert (outcome.code, outcome.err) == (code, "")
    assert f"\n  {word}  " in outcome.out
    published = snapshot.decode(called(str(path), "--json").out.encode()).requests
    if word == "UNKNOWN":
        reason = (
            f"SGLang wrote {proposed} drafted tokens for each draft, and none had more "
            "than"
        )
        assert (
            f"{reason} {len(histogram) - 1} accepted: they are trees, or the server"
            in words_of(outcome)
        )
        assert (published.models[0].acceptance_ratio, published.groups) == (None, ())
    else:
        assert published.models[0].acceptance_ratio is not None


# --- what is read


def test_standard_input_is_read_like_a_file(mixed: str) -> None:
    """However the same requests come, the report is the same."""
    done = subprocess.run(
        [COMMAND, "requests", "-"],
        input=Path(mixed).read_bytes(),
        capture_output=True,
        env=clean_environment(),
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, b"")
    head, _, report = done.stdout.decode().partition("\n")
    assert head == "standard input: 1,000 entries"
    assert report == called(mixed).out.split("\n", 1)[1]


def test_tenants_are_told_apart_where_they_are_known(
    mixed: str, tmp_path: Path
) -> None:
    """By the header, and all others together.

    A pushed request names its tenant without one.
    """
    flags = ("--requests.tenant-header", "x-tenant", "--requests.tenant", "acme")
    rows = [line.split() for line in called(mixed, *flags).out.splitlines()]
    assert ["acme", MODEL, "600", "82.1%", "0%"] in rows
    assert ["other", MODEL, "400", "38.1%", "98%"] in rows
    record = next(pairs((CODE,)))["response"]["metrics"]["speculative_decoding"]
    path = tmp_path / "file"
    path.write_text(
        lines_of(
            {"model": "m", "tenant": "acme", "speculative_decoding": record}
            for _ in "abc"
        )
    )
    assert (
        "    acme    m             3"
        in called(str(path), "--requests.tenant", "acme").out
    )


def test_the_environment_of_the_exporter_counts(mixed: str) -> None:
    """Recorded requests are grouped as its own; a window there means nothing here."""
    environment = {
        "VLLM_SPECDEC_EXPORTER_REQUESTS_TYPE_HEADER": "x-kind",
        "VLLM_SPECDEC_EXPORTER_REQUESTS_WINDOW": "1h",
    }
    assert run_here("requests", mixed, **environment).out == called(mixed, *TYPED).out


# --- the numbers


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The requests of a real vLLM, as they are pushed."""
    path = tmp_path_factory.mktemp("recorded") / "phases.jsonl"
    path.write_text(
        lines_of(
            {
                "model": "m",
                "temperature": row["temperature"],
                "speculative_decoding": row["spec"],
            }
            for row in requests("ngram-phases")
        )
    )
    return str(path)


@pytest.fixture(scope="module")
def true_steps() -> list[tuple[int, int]]:
    """Drafted and accepted tokens of each step that a real vLLM told of."""
    steps = []
    for row in requests("ngram-phases"):
        if row["spec"]["num_draft_tokens"]:
            drafted = row["spec"]["per_step_drafted"]
            steps += zip(drafted, row["spec"]["per_step_accepted"], strict=True)
    return [step for step in steps if step[0]]


PRICED = ("--batch=4", "--cost.profile=draft_model")


@pytest.fixture(scope="module")
def found(phases: str) -> ModelRequests:
    """What the command makes of them."""
    outcome = called(phases, "--json", *PRICED)
    assert (outcome.code, outcome.err) == (1, "")
    jsonschema.validate(json.loads(outcome.out), snapshot.schema())
    (model,) = models(outcome)
    return model


def test_every_smaller_k_and_every_position_is_exact(
    true_steps: list[tuple[int, int]], found: ModelRequests, phases: str
) -> None:
    """Cutting off each step of each request gives what the report says of that K.

    Positions are told by both ways of counting; the difference is what /metrics is off
    by.
    """
    steps = true_steps
    count = len(true_steps)
    outcome = called(phases, *PRICED)
    (table,) = re.findall(
        r"    K  drafted .*speedup at 4\n((?: +\d.*\n)+)", outcome.out
    )
    rows = [line.split() for line in table.splitlines()]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    for k, row in enumerate(rows, 1):
        drafted = sum(min(step[0], k) for step in steps) / count
        length = 1 + sum(min(step[1], k) for step in steps) / count
        speedup = length / PROFILE.step_cost(drafted, 4)
        assert row[1:] == [
            f"{drafted:.2f}",
            f"{length - 1:.2f}",
            f"{length:.2f}",
            f"{speedup:.2f}x",
        ], (k, row)
    assert found.mean_draft_length_at[-1] == pytest.approx(
        sum(step[0] for step in steps) / count
    )

    expected = []
    for position in range(4):
        accepted = sum(step[1] > position for step in steps)
        where = 100 * accepted / sum(step[0] > position for step in steps)
        of_all = 100 * accepted / count
        expected.append((str(position), f"{where:.1f}", f"{of_all:.1f}"))
    shape = r"^ +(\d) +([\d.]+)% +([\d.]+)%$"
    assert re.findall(shape, outcome.out, re.MULTILINE) == expected
    assert "position 3 looks 14.1 points worse than it is" in words_of(outcome)


@pytest.mark.parametrize(
    ("flags", "heads"), [((), ["1", "16", "64"]), (("--batch", "30"), ["30"])]
)
def test_speedups_are_told_for_the_batch_or_for_some(
    mixed: str, flags: tuple[str, ...], heads: list[str]
) -> None:
    """Without one, none is told of groups: the load of the file is not known."""
    outcome = called(mixed, *flags)
    assert re.findall(r"speedup at (\d+)", outcome.out) == heads
    assert bool(re.search(r"rejected  speedup$", outcome.out, re.MULTILINE)) == bool(
        flags
    )
    assert (
        "fastest by the cost profile unknown, by requests in the batch: K="
        in words_of(outcome)
    )


# --- the output


def test_json_is_the_snapshot(tmp_path: Path) -> None:
    """One line of JSON that the schema allows; what could not be used goes to standard
    error.
    """
    path = tmp_path / "file"
    path.write_text(lines_of(pairs(MIXED)) + "nothing\n")
    outcome = called(str(path), "--json")
    assert outcome.code == 1
    assert outcome.err == (
        "entries   1 not used: not JSON: each line has one object (first: line 1001)\n"
    )
    assert outcome.out.count("\n") == 1
    jsonschema.validate(json.loads(outcome.out), snapshot.schema())
    result = snapshot.decode(outcome.out.encode())
    assert result.targets == ()
    assert [
        (o.source, o.record, o.requests)
        for o in result.requests.observations
        if o.requests
    ] == [("file", "detailed", 1000)]
    (model,) = result.requests.models
    assert (model.model_name, model.window, model.mixed) == (MODEL, "", True)


def test_nothing_in_a_file_can_steer_the_terminal(tmp_path: Path) -> None:
    """Neither names of models, types and tenants, nor what errors repeat, nor the
    file's own name.
    """
    entries = [
        *pairs((replace(CODE, requests=60, model=MALICIOUS, request_type=MALICIOUS),))
    ]
    record = entries[0]["response"]["metrics"]["speculative_decoding"]
    pushed = {"model": MALICIOUS, "tenant": MALICIOUS, "request_type": MALICIOUS}
    path = tmp_path / "evil\x1b[31m"
    wrong = {"tenant": MALICIOUS, "temperature": MALICIOUS, MALICIOUS: MALICIOUS}
    path.write_text(
        lines_of([*entries, {**pushed, "speculative_decoding": record}, wrong])
    )
    shown = called(str(path), "--requests.type-header", "x-kind").out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert shown.startswith(
        f"{tmp_path}/evil\N{REPLACEMENT CHARACTER}[31m: 62 entries\n"
    )
    assert "(61 requests with something drafted)" in shown
