"""`calibrate`: what it sends and refuses.

Its numbers are held against a real vLLM in tests/vllm.
"""

import asyncio
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from msgspec.structs import replace

from support.commands import Outcome, run_here
from sweep.fake import FakeServer, refusal
from sweep.records import SERVER, result
from vllm_specdec_exporter.commands import calibrate as command
from vllm_specdec_exporter.commands.calibrate import workload
from vllm_specdec_exporter.commands.calibrate.steps import step_time
from vllm_specdec_exporter.commands.sweep.client import Endpoint
from vllm_specdec_exporter.commands.sweep.grid import SweepPlan
from vllm_specdec_exporter.commands.sweep.record import (
    CellAcceptance,
    CellResult,
    ServerIdentity,
    Status,
    SweepRecord,
    settings_of,
)
from vllm_specdec_exporter.commands.sweep.runner import SweepOutcome
from vllm_specdec_exporter.commands.sweep.stream import StreamedAnswer
from vllm_specdec_exporter.economics.calibration import CalibrationError, StepTime
from vllm_specdec_exporter.economics.cost import Basis
from vllm_specdec_exporter.economics.profiles import parse_profiles
from vllm_specdec_exporter.economics.statistics import distribution


def answer(
    seconds: float | None, *, events: int = 20, tokens: int = 41
) -> StreamedAnswer:
    """An answer in 20 steps."""
    return StreamedAnswer(
        0,
        0,
        prompt_tokens=100,
        completion_tokens=tokens,
        events=events + 1,
        event_seconds=seconds,
        seconds=5.0,
    )


def cell(*answers: StreamedAnswer) -> CellResult:
    """Two requests at a time, each of 20 steps with K = 3 that accept one token."""
    requests = len(answers)
    return replace(
        result(0.0, 1 / 3),
        answers=answers,
        seconds=5.0 * requests / 2,
        requests=requests,
        generated_tokens=41.0 * requests,
        counters=CellAcceptance(
            drafts=20.0 * requests,
            draft_tokens=60.0 * requests,
            accepted_tokens=20.0 * requests,
        ),
        tpot=distribution([0.012] * requests),
    )


def test_step_time_is_the_median_time_between_events() -> None:
    """One of three answers was delayed by prefill of the others."""
    measured = cell(answer(0.010), answer(0.011), answer(0.050))
    assert step_time(measured) == StepTime(
        2.0, 3.0, 0.011, context=120.5, cell=measured.name
    )


@pytest.mark.parametrize(
    "unusable", [answer(0.010, events=40), answer(0.010, events=10), answer(None)]
)
def test_step_time_without_an_event_for_each_step_follows_from_time_per_token(
    unusable: StreamedAnswer,
) -> None:
    """40 tokens of 12 ms in 20 steps: the server sends other events, or the client saw
    no time between.
    """
    assert step_time(cell(unusable, unusable)).seconds == pytest.approx(0.024)


def test_step_time_of_a_cell_that_was_not_measured_is_refused() -> None:
    failed = replace(
        cell(answer(0.010)), status=Status.DISTURBED, reasons=("others use the server",)
    )
    with pytest.raises(CalibrationError, match="others use the server"):
        step_time(failed)


def scheduled(batch: int, seconds: float, *, drafting: bool) -> CellResult:
    """A cell of a server with a K schedule: as many requests at a time, with drafts or
    without.
    """
    answers = [answer(seconds, tokens=41 if drafting else 21)] * (2 * batch)
    result = replace(cell(*answers), seconds=10.0)
    if drafting:
        return result
    return replace(
        result, generated_tokens=21.0 * len(answers), counters=CellAcceptance()
    )


def test_a_cell_of_which_few_steps_draft_is_a_plain_one() -> None:
    """At its end fewer requests run, so that a K schedule drafts once or twice."""
    end = replace(cell(*[answer(0.010, tokens=21)] * 2), generated_tokens=42.0)
    for drafts, k in ((1.0, 0.0), (4.0, 0.3)):
        drafted = CellAcceptance(
            drafts=drafts, draft_tokens=3 * drafts, accepted_tokens=0.0
        )
        assert step_time(replace(end, counters=drafted)).k == pytest.approx(k), drafts


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[CellResult]:
    """What the command measures, for a test to fill."""
    cells = []

    async def measure(*_: object) -> tuple[ServerIdentity, list[CellResult]]:
        return SERVER, cells

    monkeypatch.setattr(command, "measure", measure)
    return cells


def run_calibrate(flags: str, url: str = "http://127.0.0.1:9") -> Outcome:
    return run_here("calibrate", url, *flags.split())


def test_profile_of_a_k_schedule_says_what_is_extrapolated(
    tmp_path: Path, measured: list[CellResult]
) -> None:
    """In the file, which `--cost.file` takes, and on standard error."""
    drafting = [
        scheduled(batch, 0.012 + 0.001 * batch, drafting=True) for batch in (1, 2)
    ]
    plain = [
        scheduled(batch, 0.008 + 0.0005 * batch, drafting=False) for batch in (8, 16)
    ]

    measured += [*drafting, *plain] * 3
    file = tmp_path / "cost.yaml"
    outcome = run_calibrate(f"--method ngram --concurrency 1,2,8,16 --out {file}")
    assert outcome.code == 0, outcome.err
    (profile,) = parse_profiles(yaml.safe_load(file.read_text("utf-8"))).values()
    note = "without speculation at batch sizes of 8 to 16, with speculation at 1 to 2"
    assert note in profile.provenance
    assert note in outcome.err
    assert profile.basis == Basis.CALIBRATED
    assert profile.batches == (1, 2)
    assert profile.step_cost(3, 1) == pytest.approx(0.013 / 0.0085, rel=0.01)
    assert profile.uncertainty == pytest.approx(0.012 / 0.0085 - 1, rel=0.01)


def test_a_profile_that_says_nothing_is_not_written(
    tmp_path: Path, measured: list[CellResult]
) -> None:
    """Repeats that differ by three times: an error, and the exit code is 1."""
    for batch, factor in product((1, 4), (0.5, 1.0, 1.5)):
        measured += [
            scheduled(batch, 0.020 * factor, drafting=False),
            scheduled(batch, 0.030 * factor, drafting=True),
        ]
    file = tmp_path / "cost.yaml"
    outcome = run_calibrate(f"--plain-url http://127.0.0.1:8 --out {file}")
    assert outcome.code == 1
    assert "largest error" in outcome.out
    assert (
        "% only; 50% at most is of use, so nothing is written: measure more batch sizes"
        in outcome.err
    )
    assert not file.exists()


async def test_each_cell_is_repeated_and_each_server_goes_first_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = []

    async def sweep(plan: SweepPlan, server: Endpoint, **_: object) -> SweepOutcome:
        order.append((server.base[-1], *plan.concurrencies))
        return SweepOutcome(SweepRecord(SERVER, settings_of(plan)))

    monkeypatch.setattr(workload, "run_sweep", sweep)
    flags = "--plain-url http://127.0.0.1:2 --concurrency 1,4"
    outcome = await calibrate("http://127.0.0.1:1", flags)
    assert outcome.code == 1
    with_first = [("1", 1), ("2", 1), ("1", 4), ("2", 4)]
    plain_first = [("2", 1), ("1", 1), ("2", 4), ("1", 4)]
    assert order == [*with_first, *plain_first, *with_first]


async def calibrate(url: str, flags: str = "") -> Outcome:
    """Run the command beside the loop that the fake server lives in; without another
    server it is plain too.
    """
    with_plain = f"--plain-url {url} {flags} --quiet"
    return await asyncio.to_thread(run_calibrate, with_plain, url)


async def test_a_dry_run_says_how_much_would_be_sent_and_sends_nothing(
    server: FakeServer,
) -> None:
    """Two requests per worker, at least four, of code, chat, and code behind 2,000
    tokens, three times.
    """
    outcome = await calibrate(server.url, "--concurrency 1,4 --dry-run")
    assert outcome.code == 0
    assert outcome.out.startswith("108 requests of 128 tokens to each of ")
    assert server.paths == []


async def test_a_method_that_no_server_has_is_refused_before_anything_is_sent(
    server: FakeServer,
) -> None:
    accepted = await calibrate(server.url, "--method deepseek_mtp --dry-run")
    assert accepted.code == 0
    refused = await calibrate(server.url, "--method foo")
    assert refused.code == 2
    assert '--method "foo": allowed: dflash, draft_model, ' in refused.err
    assert server.paths == []


async def test_a_context_that_the_server_does_not_take_ends_it_at_once(
    server: FakeServer,
) -> None:
    async def long(_number: int, body: dict[str, Any]) -> web.Response | None:
        arguments = len(str(body["messages"]).split())
        if arguments > 1024:
            return refusal("This model's maximum context length is 1024 tokens")
        return None

    server.on_request = long
    outcome = await calibrate(server.url)
    assert outcome.code == 2
    assert "maximum context length is 1024 tokens" in outcome.err
    assert "give shorter ones with --context" in outcome.err
    assert server.measured == []
