"""`run_sweep` against a fake endpoint: what it measures, and what it does when the server misbehaves."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sweep.fake import FakeServer, refusal
from sweep.records import names_in
from vllm_specdec_exporter.commands.sweep import SweepPlan, endpoint, run_sweep, runner
from vllm_specdec_exporter.commands.sweep.endpoint import Unreachable
from vllm_specdec_exporter.commands.sweep.grid import Message, Prompt, PromptSet
from vllm_specdec_exporter.commands.sweep.progress import SweepProgress
from vllm_specdec_exporter.commands.sweep.record import CellResult, Status
from vllm_specdec_exporter.commands.sweep.record import load as load_record
from vllm_specdec_exporter.commands.sweep.runner import OtherTraffic, SweepOutcome
from vllm_specdec_exporter.config.options import ConfigError

PROMPTS = PromptSet("own", tuple(Prompt((Message("user", f"prompt {i}"),)) for i in range(6)))
PLAN = SweepPlan(
    prompts=(PROMPTS,), temperatures=(0.0, 0.8), requests=4, max_tokens=20, watch=0.1, request_timeout=5
)


class Said(SweepProgress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.cells: list[CellResult] = []

    def say(self, words: str) -> None:
        self.words.append(words)

    def finished(self, result: CellResult) -> None:
        self.cells.append(result)


async def sweep(
    server: FakeServer, directory: Path | None = None, progress: SweepProgress | None = None, **changes: Any
) -> SweepOutcome:
    """Run the usual plan, with changes, against a server."""
    more = {} if progress is None else {"progress": progress}
    return await run_sweep(replace(PLAN, **changes), endpoint(server.url), directory=directory, **more)


def nth(number: int, what: Any) -> Any:
    """Return a hook that does something at the measured request of that number, from 1."""

    async def hook(count: int, body: dict[str, Any]) -> web.StreamResponse | None:
        if count == number and body["max_tokens"] > 8:
            found = what()
            return await found if asyncio.iscoroutine(found) else found
        return None

    return hook


async def test_acceptance_comes_from_counters_and_records_alike(server: FakeServer, tmp_path: Path) -> None:
    outcome = await sweep(server, tmp_path)
    assert outcome.clean
    cold, hot = outcome.record.cells
    assert (cold.acceptance_ratio, hot.acceptance_ratio) == (3 / 4, 2 / 4)
    assert (cold.mean_acceptance_length, hot.mean_acceptance_length) == (4.0, 3.0)
    assert cold.counters == cold.records
    assert cold.counters is not None
    assert cold.counters.position_acceptance_ratio == (1.0, 1.0, 1.0, 0.0)
    assert cold.counters.drafts == 4 * 10
    assert (cold.completion_tokens, cold.generated_tokens) == (80, 80.0)
    assert cold.acceptance_interval is not None
    assert (cold.acceptance_interval.unit, cold.acceptance_interval.units) == ("request", 4)
    assert cold.tokens_per_second == pytest.approx(80 / cold.seconds)
    assert load_record(tmp_path) == outcome.record


async def test_without_records_the_counters_alone_tell_and_the_interval_says_so(server: FakeServer) -> None:
    server.records = False
    outcome = await sweep(server)
    assert outcome.clean
    for cell, ratio in zip(outcome.record.cells, (0.75, 0.5), strict=True):
        assert (cell.records, cell.acceptance_ratio) == (None, ratio)
        assert cell.acceptance_interval is not None
        assert cell.acceptance_interval.unit == "draft"


async def test_requests_say_what_the_plan_says(server: FakeServer) -> None:
    """By default they have no seed; each prompt is warmed up once before it is measured."""
    await sweep(server, seed=7, top_p=0.9, ignore_eos=True, temperatures=(0.8,), requests=8)
    # One worker: in order, and the prompts in turn.
    assert server.measured == [
        {
            "model": "fake-model",
            "temperature": 0.8,
            "max_tokens": 20,
            "seed": 7 + number,
            "top_p": 0.9,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": f"prompt {number % 6}"}],
        }
        for number in range(8)
    ]
    server.bodies.clear()
    await sweep(server)
    assert all(not {"seed", "top_p", "ignore_eos"} & set(body) for body in server.measured)
    probe, *warm = [body for body in server.bodies if body["max_tokens"] <= 8]
    assert probe["max_tokens"] == 1
    assert [body["messages"][0]["content"] for body in warm] == [f"prompt {i}" for i in range(4)]
    assert server.bodies[: 1 + len(warm)] == [probe, *warm]


async def test_as_many_requests_run_at_once_as_there_are_workers(server: FakeServer) -> None:
    most = 0

    async def look(_count: int, body: dict[str, Any]) -> None:
        nonlocal most
        if body["max_tokens"] > 8:
            most = max(most, server.engine.running + 1)

    server.on_request, server.delay = look, 0.2
    await sweep(server, concurrencies=(3,), requests=9, temperatures=(0.0,))
    assert most == 3


async def test_an_address_may_end_in_v1_or_metrics(server: FakeServer) -> None:
    (plain, *others) = (endpoint(server.url + suffix) for suffix in ("", "/", "/v1", "/v1/", "/metrics"))
    assert [(one.target, one.base) for one in others] == [(plain.target, plain.base)] * 4
    assert (await sweep(server)).record.server.target == server.url
    assert set(server.paths) == {"/metrics", "/version", "/v1/models", "/v1/chat/completions"}


async def test_a_server_without_chat_template_gets_completions_unless_chat_was_asked_for(
    server: FakeServer,
) -> None:
    server.chat_template = False
    said = Said()
    outcome = await sweep(server, progress=said)
    assert outcome.clean
    assert outcome.record.setup.api == "completions"
    assert any("using the completions API" in words and "chat template" in words for words in said.words)
    assert all("prompt" in body for body in server.measured)
    with pytest.raises(ConfigError, match=r"refuses such requests .chat.: HTTP 400 Bad Request: As of"):
        await sweep(server, api="chat")


# --- which server ---


async def test_one_of_several_models_has_to_be_chosen(server: FakeServer) -> None:
    server.models = ["one", "two"]
    with pytest.raises(ConfigError, match="--model is needed: the server has one, two"):
        await sweep(server)
    with pytest.raises(ConfigError, match=r'--model "x": the server has no such model; it has one, two'):
        await sweep(server, model="x")
    assert (await sweep(server, model="two")).record.server.model == "two"
    assert {body["model"] for body in server.bodies} == {"two"}


async def test_an_api_key_is_sent_and_its_absence_explained(server: FakeServer, tmp_path: Path) -> None:
    server.api_key = "secret"
    with pytest.raises(Unreachable, match=r"wants an API key .*401.*see --api-key-file"):
        await sweep(server)
    file = tmp_path / "key"
    file.write_text("secret\n")
    assert (await run_sweep(PLAN, endpoint(server.url, api_key_file=str(file)))).clean
    file.write_text("")
    with pytest.raises(ConfigError, match="holds no token"):
        await run_sweep(PLAN, endpoint(server.url, api_key_file=str(file)))


async def test_a_server_that_drafts_nothing_is_measured_without_acceptance(server: FakeServer) -> None:
    server.speculating = server.records = False
    said = Said()
    outcome = await sweep(server, progress=said)
    assert any("no speculation" in words for words in said.words)
    assert outcome.clean
    cell = outcome.record.cells[0]
    assert (cell.acceptance_ratio, cell.acceptance_interval) == (None, None)
    assert cell.tpot.p50 is not None


# --- other traffic ---


async def test_others_before_the_sweep_refuse_it(server: FakeServer, tmp_path: Path) -> None:
    async def generate() -> None:
        while True:
            server.engine.generated += 5
            await asyncio.sleep(0.02)

    server.engine.running = 3
    with pytest.raises(OtherTraffic, match=r"others use .*: 3 requests running, 0 waiting, 0 tokens"):
        await sweep(server, tmp_path / "out")
    assert server.bodies == []
    assert not (tmp_path / "out").exists()
    server.engine.running = 0
    task = asyncio.create_task(generate())
    with pytest.raises(OtherTraffic, match=r"[1-9]\d* tokens generated within \d+\.\d s"):
        await sweep(server)
    task.cancel()


async def test_requests_of_others_that_come_before_a_cell_stop_the_sweep(server: FakeServer) -> None:
    server.on_request = nth(4, lambda: setattr(server.engine, "running", server.engine.running + 2))
    outcome = await sweep(server)
    # Their requests stay, so the counters never rest: the first cell is in doubt, the second is not begun.
    assert "the counters did not come to rest after the last answer" in outcome.stopped
    assert [cell.status for cell in outcome.record.cells] == [Status.DISTURBED]
    server.engine.running = 0

    async def stay(_count: int, body: dict[str, Any]) -> None:
        server.engine.running += 1 if body["max_tokens"] == 8 else 0

    server.on_request = stay
    outcome = await sweep(server)
    assert "others use the server: 4 requests running, 0 waiting before own, temperature 0" in outcome.stopped
    assert outcome.record.cells == ()


async def test_other_traffic_within_a_cell_stops_the_sweep_and_keeps_what_is_measured(
    server: FakeServer, tmp_path: Path
) -> None:
    def disturb() -> None:
        server.other_tokens_per_request = 1  # of 20: 5 %

    server.on_request = nth(6, disturb)
    outcome = await sweep(server, tmp_path)
    assert [cell.status for cell in outcome.record.cells] == [Status.OK, Status.DISTURBED]
    assert "the counters say 83 generated tokens, the answers have 80" in outcome.stopped
    assert (outcome.left, outcome.clean) == (1, False)
    # The disturbed cell is measured again once the others are gone.
    server.on_request, server.other_tokens_per_request = None, 0
    again = await sweep(server, tmp_path)
    assert again.clean
    assert again.record.cells[0] == outcome.record.cells[0]
    assert len(server.measured) == 8 + 4


async def test_two_percent_of_other_tokens_are_let_pass(server: FakeServer) -> None:
    server.on_request = nth(1, lambda: setattr(server.engine, "generated", server.engine.generated + 1))
    outcome = await sweep(server)  # 1 of 80
    assert outcome.clean
    assert outcome.record.cells[0].generated_tokens == 81


async def test_other_traffic_may_be_allowed(server: FakeServer, tmp_path: Path) -> None:
    server.engine.running = 1
    server.other_tokens_per_request = 10
    plan = replace(PLAN, allow_other_traffic=True, temperatures=(0.0,))
    said = Said()
    outcome = await run_sweep(plan, endpoint(server.url), directory=tmp_path, progress=said)
    assert "others use the server: 1 requests running" in said.words[0]
    (cell,) = outcome.record.cells
    assert cell.status is Status.DISTURBED
    assert cell.acceptance_ratio == 0.75
    assert (outcome.stopped, outcome.left, outcome.clean) == ("", 0, False)


async def test_drafts_of_others_are_seen_in_the_records_even_if_no_token_is(server: FakeServer) -> None:
    server.on_request = nth(2, lambda: server.engine.histogram.update({0: 4}))  # of 40 drafts
    outcome = await sweep(server)
    cell = outcome.record.cells[0]
    assert cell.status is Status.DISTURBED
    assert cell.reasons == ("the counters say 44 drafts, the requests' records 40",)
    # The requests' own records are not touched by it.
    assert cell.acceptance_ratio == 0.75
    assert cell.counters is not None
    assert cell.counters.acceptance_ratio == pytest.approx(30 / 44)


# --- failing requests ---


async def test_failed_requests_are_counted_and_named(server: FakeServer) -> None:
    server.on_request = nth(2, lambda: refusal("out of luck", 503))
    outcome = await sweep(server)
    cell = outcome.record.cells[0]
    assert (cell.status, cell.requests, cell.errors) == (Status.OK, 4, 1)
    assert cell.reasons == ("1 of 4 requests: HTTP 503 Service Unavailable: out of luck",)
    assert cell.acceptance_ratio == 0.75
    assert (cell.ttft.count, cell.completion_tokens) == (3, 60)


async def test_a_cell_without_any_answer_has_failed_and_the_next_goes_on(server: FakeServer) -> None:
    async def refuse(_count: int, body: dict[str, Any]) -> web.Response | None:
        return refusal("no", 500) if body["temperature"] == 0.0 and body["max_tokens"] > 8 else None

    server.on_request = refuse
    outcome = await sweep(server)
    assert [cell.status for cell in outcome.record.cells] == [Status.FAILED, Status.OK]
    assert outcome.record.cells[0].acceptance_ratio is None
    assert (outcome.clean, outcome.left, outcome.stopped) == (False, 1, "")


@pytest.mark.full
async def test_an_answer_that_hangs_ends_at_the_request_timeout(server: FakeServer) -> None:
    async def hang() -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    server.on_request = nth(1, hang)
    outcome = await sweep(server, request_timeout=4)
    assert outcome.record.cells[0].reasons == ("1 of 4 requests: no complete response within 4 s",)


async def test_broken_streams_are_failed_requests(server: FakeServer) -> None:
    body = b'data: {"error": {"message": "engine\\u0007 died"}}\n\n'
    server.on_request = nth(3, lambda: web.Response(body=body, content_type="text/event-stream"))
    (cell,) = (await sweep(server, temperatures=(0.0,))).record.cells
    assert cell.errors == 1
    assert "engine died" in cell.reasons[0]


# --- restarts ---


async def test_a_cell_in_which_the_server_restarts_is_measured_again_once(server: FakeServer) -> None:
    server.on_request = nth(3, server.restart)
    said = Said()
    outcome = await sweep(server, progress=said)
    assert outcome.clean
    first, second = outcome.record.cells
    assert (first.attempts, second.attempts) == (2, 1)
    assert (first.acceptance_ratio, first.generated_tokens) == (0.75, 80)
    assert "the server restarted within own, temperature 0, concurrency 1; measuring it again" in said.words


async def test_a_second_restart_fails_the_cell_and_the_next_goes_on(server: FakeServer) -> None:
    async def restart(count: int, body: dict[str, Any]) -> None:
        if body["max_tokens"] > 8 and count in (2, 6):
            server.restart()

    server.on_request = restart
    first, second = (await sweep(server)).record.cells
    assert (first.status, first.attempts) == (Status.FAILED, 2)
    assert first.reasons == ("the server restarted within the cell, 2 times",)
    assert second.status is Status.OK


def going_away(server: FakeServer, number: int, come_back: Any = None) -> None:
    """Let the server close at the measured request of that number, and then do something."""

    async def close() -> None:
        await server.close()
        if come_back is not None:
            await come_back()

    async def away() -> web.Response:
        tasks.append(asyncio.create_task(close()))
        return refusal("going down", 503)

    tasks: list[asyncio.Task[None]] = []
    server.on_request = nth(number, away)


@pytest.mark.full
async def test_a_server_that_goes_away_is_waited_for(server: FakeServer) -> None:
    async def come_back() -> None:
        server.restart()
        await asyncio.sleep(1.5)
        await server.open()

    going_away(server, 2, come_back)
    said = Said()
    outcome = await sweep(server, progress=said)
    assert any("the server does not answer" in words for words in said.words)
    assert outcome.clean
    assert outcome.record.cells[0].attempts == 2


async def test_a_server_that_stays_away_ends_the_sweep_with_what_is_measured(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RECOVERY", 1.0)
    going_away(server, 6)
    outcome = await sweep(server, tmp_path)
    assert "went away and did not come back within 1s" in outcome.stopped
    assert (len(outcome.record.cells), outcome.left) == (1, 1)
    assert load_record(tmp_path) == outcome.record


async def test_another_server_that_came_back_ends_the_sweep(server: FakeServer) -> None:
    async def come_back() -> None:
        server.models = ["another"]
        await server.open()

    going_away(server, 6, come_back)
    outcome = await sweep(server)
    assert "came back as another server: model fake-model there, another now" in outcome.stopped
    assert len(outcome.record.cells) == 1


# --- going on ---


@pytest.mark.full
async def test_the_time_that_a_sweep_may_take_is_kept(server: FakeServer, tmp_path: Path) -> None:
    server.delay = 0.2
    plan = replace(PLAN, max_duration=3.2, requests=9)
    outcome = await run_sweep(plan, endpoint(server.url), directory=tmp_path)
    assert outcome.stopped == "the time of --max-duration 3s200ms is over"
    assert outcome.left >= 1
    assert load_record(tmp_path) == outcome.record


async def test_another_grid_model_or_server_in_the_same_directory_is_refused(
    server: FakeServer, tmp_path: Path
) -> None:
    await sweep(server, tmp_path)
    before, sent = (tmp_path / "sweep.json").read_bytes(), len(server.bodies)
    fewer = PromptSet("own", PROMPTS.prompts[:5])
    for change, words in (
        ({"temperatures": (0.0,)}, "temperatures 0,0.8 there, 0 now"),
        ({"max_tokens": 21, "seed": 1}, "max tokens 20 there, 21 now; seed null there, 1 now"),
        ({"api": "completions"}, "api chat there, completions now"),
        ({"prompts": (fewer,)}, r"prompts own \(\w+\) there, own \(\w+\) now"),
    ):
        with pytest.raises(ConfigError, match=f"holds another sweep: {words}; repeat"):
            await sweep(server, tmp_path, **change)
    server.models = ["other"]
    with pytest.raises(ConfigError, match="model fake-model there, other now; root org/fake-model there"):
        await sweep(server, tmp_path)
    async with FakeServer() as second:
        with pytest.raises(ConfigError, match=f"target {server.url} there, {second.url} now"):
            await sweep(second, tmp_path)
    assert (tmp_path / "sweep.json").read_bytes() == before
    assert len(server.bodies) == sent


async def test_a_file_that_is_no_record_is_refused_and_left_alone(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    for content, words in (
        ("not json", "is not the record of a sweep"),
        ('{"format": "vllm-specdec-sweep", "format_version": 99}', "has format version 99, known: 1"),
        ('{"format": "vllm-specdec-sweep", "format_version": 1}', "is not the record of a sweep: Object"),
    ):
        path.write_text(content)
        with pytest.raises(ConfigError, match=words):
            await sweep(server, tmp_path)
        assert path.read_text() == content


async def test_a_directory_that_cannot_be_written_ends_the_sweep_before_it_measures(
    server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--out .*file/out.*cannot be"):
        await sweep(server, tmp_path / "file" / "out")
    assert server.measured == []


async def test_the_record_says_its_format_and_is_whole_after_each_cell(
    server: FakeServer, tmp_path: Path
) -> None:
    seen: list[int] = []
    await run_sweep(
        PLAN,
        endpoint(server.url),
        directory=tmp_path,
        begun=lambda _: seen.append(len(json.loads((tmp_path / "sweep.json").read_text())["cells"])),
    )
    assert seen == [0, 1, 2]
    document = json.loads((tmp_path / "sweep.json").read_text())
    assert (document["format"], document["format_version"]) == ("vllm-specdec-sweep", 1)
    assert names_in(tmp_path) == {"sweep.json"}
