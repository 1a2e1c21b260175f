"""`run_sweep` against a fake endpoint: what it measures, and what it does when the
server misbehaves.
"""

import asyncio
import json
import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from support.builders import refusal as refused
from sweep.fake import FakeServer, refusal
from sweep.records import names_in
from vllm_specdec_exporter.commands.sweep.client import (
    Endpoint,
    Unreachable,
    without_api,
)
from vllm_specdec_exporter.commands.sweep.grid import (
    BUILTIN,
    Message,
    Prompt,
    PromptSet,
    SweepPlan,
    load_prompts,
)
from vllm_specdec_exporter.commands.sweep.record import Status
from vllm_specdec_exporter.commands.sweep.runner import (
    OtherTraffic,
    SweepOutcome,
    run_sweep,
)
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.config.values import parse_target
from vllm_specdec_exporter.upstream.connection import UpstreamConfig

PROMPTS = PromptSet("own", tuple((Message("user", f"prompt {i}"),) for i in range(6)))
PLAN = SweepPlan(
    prompts=(PROMPTS,),
    temperatures=(0.0, 0.8),
    requests=4,
    max_tokens=20,
    watch=0.1,
    request_timeout=5,
)


def endpoint(url: str, api_key_file: str = "") -> Endpoint:
    target = without_api(parse_target(url))
    return Endpoint(UpstreamConfig(targets=(target,)), api_key_file)


async def sweep(
    server: FakeServer,
    directory: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
    **changes: Any,
) -> SweepOutcome:
    """Run the usual plan, with changes, against a server."""
    return await run_sweep(
        replace(PLAN, **changes), endpoint(server.url), directory=directory, say=say
    )


def nth(number: int, act: Any) -> Any:
    """Return a hook that acts at the measured request of that number, from 1."""

    async def hook(count: int, body: dict[str, Any]) -> web.StreamResponse | None:
        if count == number and body["max_tokens"] > 8:
            outcome = act()
            if asyncio.iscoroutine(outcome):
                return await outcome
            return outcome
        return None

    return hook


async def test_acceptance_comes_from_counters_and_records_alike(
    server: FakeServer,
) -> None:
    outcome = await sweep(server)
    assert outcome.clean
    cold, hot = outcome.record.cells
    assert cold.acceptance_ratio == 3 / 4
    assert hot.acceptance_ratio == 2 / 4
    assert cold.mean_acceptance_length == 4.0
    assert hot.mean_acceptance_length == 3.0
    assert cold.counters == cold.records
    assert cold.counters.position_acceptance_ratio == (1.0, 1.0, 1.0, 0.0)
    assert cold.counters.drafts == 4 * 4
    assert cold.completion_tokens == 80
    assert cold.generated_tokens == 80.0
    assert cold.acceptance_interval.unit == "request"
    assert cold.acceptance_interval.units == 4
    assert cold.tokens_per_second == pytest.approx(80 / cold.seconds)


async def test_without_records_the_counters_alone_tell_and_the_interval_says_so(
    server: FakeServer,
) -> None:
    server.records = False
    outcome = await sweep(server)
    assert outcome.clean
    cells = outcome.record.cells
    assert [cell.acceptance_ratio for cell in cells] == [0.75, 0.5]
    assert [cell.records for cell in cells] == [None, None]
    assert [cell.acceptance_interval.unit for cell in cells] == ["draft", "draft"]


async def test_requests_say_what_the_plan_says(server: FakeServer) -> None:
    """Each prompt is warmed up once before it is measured."""
    await sweep(server, top_p=0.9, ignore_eos=True, temperatures=(0.8,), requests=8)
    # One worker: in order, and the prompts in turn.
    assert server.measured == [
        {
            "model": "fake-model",
            "temperature": 0.8,
            "max_tokens": 20,
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
    assert all(not {"top_p", "ignore_eos"} & set(body) for body in server.measured)
    probe, *warm = [body for body in server.bodies if body["max_tokens"] <= 8]
    assert probe["max_tokens"] == 1
    assert [body["messages"][0]["content"] for body in warm] == [
        f"prompt {i}" for i in range(4)
    ]
    assert server.bodies[: 1 + len(warm)] == [probe, *warm]


async def test_as_many_requests_run_at_once_as_there_are_workers(
    server: FakeServer,
) -> None:
    highest = 0

    async def look(_count: int, body: dict[str, Any]) -> None:
        nonlocal highest
        if body["max_tokens"] > 8:
            highest = max(highest, server.engine.running + 1)

    server.on_request = look
    server.delay = 0.2
    await sweep(server, concurrencies=(3,), requests=9, temperatures=(0.0,))
    assert highest == 3


async def test_an_address_may_end_in_v1_or_metrics(server: FakeServer) -> None:
    (plain, *others) = (
        endpoint(server.url + suffix) for suffix in ("", "/", "/v1", "/v1/", "/metrics")
    )
    assert [(each.target, each.base) for each in others] == [
        (plain.target, plain.base)
    ] * 4
    assert (await sweep(server)).record.server.target == server.url
    assert set(server.paths) == {"/metrics", "/version", "/v1/chat/completions"}


async def test_a_server_without_chat_template_has_the_completions_api(
    server: FakeServer,
) -> None:
    server.chat_template = False
    with pytest.raises(
        ConfigError,
        match=r"refuses such requests: HTTP 400 .*; --api completions needs none",
    ):
        await sweep(server)
    outcome = await sweep(server, api="completions")
    assert outcome.clean
    assert outcome.record.setup.api == "completions"
    assert all("prompt" in body for body in server.measured)


# --- which server ---


async def test_one_of_several_models_has_to_be_chosen(server: FakeServer) -> None:
    server.models = ["one", "two"]
    with pytest.raises(ConfigError, match="--model is needed: the server has one, two"):
        await sweep(server)
    with pytest.raises(
        Unreachable,
        match=r"does not answer requests: HTTP 404 .*The model `x` does not",
    ):
        await sweep(server, model="x")
    assert (await sweep(server, model="two")).record.server.model == "two"
    assert {body["model"] for body in server.bodies} == {"two"}


async def test_an_api_key_is_sent_and_its_absence_explained(
    server: FakeServer, tmp_path: Path
) -> None:
    server.api_key = "secret"
    with pytest.raises(
        Unreachable, match=r"HTTP 401 Unauthorized: Unauthorized; see --api-key-file"
    ):
        await sweep(server)
    file = tmp_path / "key"
    file.write_text("secret\n")
    assert (await run_sweep(PLAN, endpoint(server.url, api_key_file=str(file)))).clean
    file.write_text("")
    with pytest.raises(ConfigError, match="holds no token"):
        await run_sweep(PLAN, endpoint(server.url, api_key_file=str(file)))


async def test_a_server_that_drafts_nothing_is_measured_without_acceptance(
    server: FakeServer,
) -> None:
    server.speculating = server.records = False
    messages = []
    outcome = await sweep(server, say=messages.append)
    assert any("no speculation" in message for message in messages)
    assert outcome.clean
    cell = outcome.record.cells[0]
    assert cell.acceptance_ratio is None
    assert cell.acceptance_interval is None
    assert cell.tpot.p50 is not None


# --- other traffic ---


async def test_others_before_the_sweep_refuse_it(
    server: FakeServer, tmp_path: Path
) -> None:
    async def generate() -> None:
        while True:
            server.engine.generated += 5
            await asyncio.sleep(0.02)

    server.engine.running = 3
    with pytest.raises(
        OtherTraffic, match=r"others use .*: 3 requests running or waiting, 0 tokens"
    ):
        await sweep(server, tmp_path / "out")
    assert server.bodies == []
    assert not (tmp_path / "out").exists()
    server.engine.running = 0
    task = asyncio.create_task(generate())
    with pytest.raises(
        OtherTraffic, match=r"[1-9]\d* tokens generated within \d+\.\d s"
    ):
        await sweep(server)
    task.cancel()


#: The measured request at which something happens, what happens, and why the sweep
#: stops in which cell.
STOPS = {
    "requests of others that stay": (
        4,
        lambda server: setattr(server.engine, "running", server.engine.running + 2),
        (
            "other traffic disturbed own, temperature 0, concurrency 1: the counters "
            "did not come to rest"
        ),
        [Status.DISTURBED],
    ),
    "tokens of others": (
        6,
        lambda server: setattr(server, "other_tokens_per_request", 1),  # of 20: 5 %
        "the counters say 83 generated tokens, the answers have 80",
        [Status.OK, Status.DISTURBED],
    ),
    "drafts of others, though no token": (
        2,
        lambda server: server.engine.histogram.update({0: 4}),  # of 16 drafts
        "the counters say 20 drafts, the requests' records 16",
        [Status.DISTURBED],
    ),
    "a restart": (
        7,
        lambda server: server.restart(),
        "the server restarted within own, temperature 0.8, concurrency 1",
        [Status.OK],
    ),
}


@pytest.mark.parametrize("name", STOPS)
async def test_a_disturbance_stops_the_sweep_and_keeps_what_is_measured(
    server: FakeServer, tmp_path: Path, name: str
) -> None:
    number, disturb, why, statuses = STOPS[name]
    server.on_request = nth(number, lambda: disturb(server) and None)
    outcome = await sweep(server, tmp_path)
    assert why in outcome.stopped
    assert not outcome.clean
    assert [cell.status for cell in outcome.record.cells] == statuses
    kept = json.loads((tmp_path / "sweep.json").read_text())["cells"]
    assert [cell["status"] for cell in kept] == statuses
    # The requests' own records are not touched by others.
    assert outcome.record.cells[0].acceptance_ratio == 0.75


async def test_requests_of_others_that_come_before_a_cell_stop_the_sweep(
    server: FakeServer,
) -> None:
    async def stay(_count: int, body: dict[str, Any]) -> None:
        server.engine.running += 1 if body["max_tokens"] == 8 else 0

    server.on_request = stay
    outcome = await sweep(server)
    why = "others use the server: 4 requests running .* before own, temperature 0"
    assert re.search(why, outcome.stopped)
    assert outcome.record.cells == ()


async def test_two_percent_of_other_tokens_are_let_pass(server: FakeServer) -> None:
    server.on_request = nth(
        1, lambda: setattr(server.engine, "generated", server.engine.generated + 1)
    )
    outcome = await sweep(server)  # 1 of 80
    assert outcome.clean
    assert outcome.record.cells[0].generated_tokens == 81


async def test_other_traffic_may_be_allowed(server: FakeServer) -> None:
    server.engine.running = 1
    server.other_tokens_per_request = 10
    messages = []
    outcome = await sweep(
        server, say=messages.append, allow_other_traffic=True, temperatures=(0.0,)
    )
    assert "others use the server: 1 requests running or waiting" in messages[0]
    (cell,) = outcome.record.cells
    assert cell.status is Status.DISTURBED
    assert cell.acceptance_ratio == 0.75
    assert outcome.stopped == ""
    assert outcome.clean is False


# --- failing requests ---


async def hang() -> web.Response:
    await asyncio.sleep(30)
    return web.Response()


BROKEN = b'data: {"error": {"message": "engine\\u0007 died"}}\n\n'


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            lambda: refusal("out of luck", 503),
            "HTTP 503 Service Unavailable: out of luck",
        ),
        (
            lambda: web.Response(body=BROKEN, content_type="text/event-stream"),
            "engine died",
        ),
        pytest.param(hang, "no complete response within 4 s", marks=pytest.mark.full),
    ],
)
async def test_failed_requests_are_counted_and_named(
    server: FakeServer, answer: Any, reason: str
) -> None:
    server.on_request = nth(2, answer)
    cell = (await sweep(server, request_timeout=4)).record.cells[0]
    assert cell.status == Status.OK
    assert cell.requests == 4
    assert cell.errors == 1
    assert cell.reasons == (f"1 of 4 requests: {reason}",)
    assert cell.acceptance_ratio == 0.75
    assert cell.ttft.count == 3
    assert cell.completion_tokens == 60


async def test_a_cell_without_any_answer_has_failed_and_the_next_goes_on(
    server: FakeServer,
) -> None:
    async def refuse(_count: int, body: dict[str, Any]) -> web.Response | None:
        if body["temperature"] == 0.0 and body["max_tokens"] > 8:
            return refusal("no", 500)
        return None

    server.on_request = refuse
    outcome = await sweep(server)
    assert [cell.status for cell in outcome.record.cells] == [Status.FAILED, Status.OK]
    assert outcome.record.cells[0].acceptance_ratio is None
    assert outcome.clean is False
    assert outcome.stopped == ""


# --- the end ---


async def test_a_server_that_goes_away_ends_the_sweep_with_what_is_measured(
    server: FakeServer, tmp_path: Path
) -> None:
    async def away() -> web.Response:
        tasks.append(asyncio.create_task(server.close()))
        return refusal("going down", 503)

    tasks = []
    server.on_request = nth(6, away)
    outcome = await sweep(server, tmp_path)
    assert (
        "the server's counters cannot be read any more: nothing listens at"
        in outcome.stopped
    )
    assert (
        len(outcome.record.cells)
        == len(json.loads((tmp_path / "sweep.json").read_text())["cells"])
        == 1
    )


async def test_a_directory_that_cannot_be_created_ends_the_sweep_before_it_measures(
    server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--out .*file/out.*cannot be created"):
        await sweep(server, tmp_path / "file" / "out")
    assert server.measured == []


async def test_the_record_says_its_format_and_is_whole_after_each_cell(
    server: FakeServer, tmp_path: Path
) -> None:
    counts = []
    await run_sweep(
        PLAN,
        endpoint(server.url),
        directory=tmp_path / "new",
        say=lambda _: counts.append(
            len(json.loads((tmp_path / "new/sweep.json").read_text())["cells"])
        ),
    )
    # Two lines before the first cell, and one behind each.
    assert counts == [0, 0, 1, 2]
    document = json.loads((tmp_path / "new/sweep.json").read_text())
    assert document["format"] == "vllm-specdec-sweep"
    assert document["format_version"] == 2
    assert document["setup"]["temperatures"] == [0.0, 0.8]
    assert document["cells"][0]["answers"][3]["drafts"]["accepted_tokens"] == 12
    assert names_in(tmp_path / "new") == {"sweep.json"}


# --- prompts: the built-in sets, and files


def user(text: str) -> Prompt:
    return (Message("user", text),)


def test_the_built_in_sets_have_as_many_different_prompts_as_a_cell_has_requests() -> (
    None
):
    sets = load_prompts(["all"])
    assert [each.name for each in sets] == list(BUILTIN)
    every = [*chain.from_iterable(each.prompts for each in sets)]
    assert all(len(each.prompts) == SweepPlan(sets).requests for each in sets)
    assert len(set(every)) == len(every)
    assert all(len(prompt[0].content) < 250 for prompt in every)


def test_a_text_file_has_one_prompt_a_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("\ufefffirst\n\n  second  \n", encoding="utf-8")
    (prompts,) = load_prompts([str(file)])
    assert prompts.name == "mine"
    assert prompts.prompts == (user("first"), user("second"))


def test_json_lines_have_prompts_or_conversations(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(
        '{"prompt": "one"}\n'
        '{"messages": [{"role": "system", "content": "be brief"}, {"role": "user", '
        '"content": "two"}]}\n'
    )
    (prompts,) = sets = load_prompts([str(file)])
    assert prompts.prompts == (
        user("one"),
        (Message("system", "be brief"), Message("user", "two")),
    )
    completion = SweepPlan(sets, api="completions").request(1, prompts.prompts[1])
    assert completion.body["prompt"] == "be brief\ntwo"


def test_an_edited_file_has_another_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text("a b\n")
    (original,) = load_prompts([str(file)])
    file.write_text("a c\n")
    (edited,) = load_prompts([str(file)])
    assert original.digest != edited.digest


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\n \n", "no prompt in it"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b'{"prompt": "a"}\nplain\n', "line 2: not a prompt; allowed: "),
        (b'{"prompt": 3}\n', "line 1: not a prompt"),
        (b'{"messages": []}\n', "line 1: not a prompt"),
        (b'{"messages": [{"role": "boss", "content": "x"}]}\n', "line 1: not a prompt"),
        (b'{"prompt": "a"\n', "line 1: not a prompt"),
        (b"x\n" * 10_001, "10001 prompts; allowed: at most 10000"),
    ],
)
def test_files_without_usable_prompts_are_refused(
    tmp_path: Path, content: bytes, why: str
) -> None:
    (tmp_path / "p").write_bytes(content)
    message = refused(ConfigError, load_prompts, [str(tmp_path / "p")])
    assert f'--prompts "{tmp_path / "p"}"' in message
    assert why in message
    assert "\n" not in message
