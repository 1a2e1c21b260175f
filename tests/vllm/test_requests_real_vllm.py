"""The tap before a real vLLM: what it counts is what each client was told of its own request.

The truth is the record in each answer, read by the client from the very bytes that it got through the tap.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from bisect import bisect_left
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import openai
import pytest

from support.ports import free_port

from .conftest import Exporter, Scrape
from .server import HOST, MODEL_NAME, REPETITIVE_PROMPTS, VllmServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

K = 4
#: Prompts of which the draft model guesses the greedy continuation well, and badly.
EASY, HARD = (REPETITIVE_PROMPTS[2], REPETITIVE_PROMPTS[3]), (REPETITIVE_PROMPTS[1],)


@dataclass(frozen=True)
class Ask:
    """A request to make."""

    prompt: str
    temperature: float | None = 0.0
    kind: str = ""
    api: str = "completions"
    stream: bool = True
    include_usage: bool = True
    choices: int = 1
    seed: int = 0
    max_tokens: int = 48

    def body(self) -> dict[str, object]:
        body: dict[str, object] = {
            "model": MODEL_NAME,
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "seed": self.seed,
            "stream": self.stream,
        }
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if self.choices != 1:
            body["n"] = self.choices
        if self.stream and self.include_usage:
            body["stream_options"] = {"include_usage": True}
        if self.api == "chat":
            return {**body, "messages": [{"role": "user", "content": self.prompt}]}
        return {**body, "prompt": self.prompt}

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.api == "chat" else "/v1/completions"


@dataclass(frozen=True)
class Got:
    """What the client was told."""

    ask: Ask
    record: dict[str, Any] | None
    tokens: int | None
    ttft: float | None

    @property
    def ratio(self) -> float | None:
        if not self.record or not self.record["num_draft_tokens"]:
            return None
        return float(self.record["num_accepted_draft_tokens"] / self.record["num_draft_tokens"])

    @property
    def kind(self) -> str:
        return self.ask.kind or self.ask.api

    @property
    def bucket(self) -> str:
        at = self.ask.temperature
        return {None: "unset", 0.0: "0", 0.4: "0-0.5", 0.6: "0.5-0.7", 1.0: "0.7-1", 1.3: "1+"}[at]

    @property
    def outcome(self) -> str | None:
        if self.ratio is None:
            return None
        return "loses" if self.ratio < 0.5 else "break_even" if self.ratio <= 0.65 else "gains"


def send(port: int, ask: Ask) -> Got:
    """Make a request, and read from the answer what it tells."""
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    headers = {"Content-Type": "application/json"}
    if ask.kind:
        headers["X-Request-Type"] = ask.kind
    try:
        started = time.monotonic()
        connection.request("POST", ask.path, json.dumps(ask.body()), headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read(2000)
        if not ask.stream:
            return _told(ask, json.loads(answer.read()), None)
        last: dict[str, Any] = {}
        first = None
        for line in answer:
            if line.startswith(b"data: {"):
                event = json.loads(line.removeprefix(b"data: "))
                if event["choices"] and first is None:
                    first = time.monotonic() - started
                last = event
        return _told(ask, last, first)
    finally:
        connection.close()


def _told(ask: Ask, document: dict[str, Any], ttft: float | None) -> Got:
    metrics = document.get("metrics") or {}
    usage = document.get("usage") or {}
    return Got(ask, metrics.get("speculative_decoding"), usage.get("completion_tokens"), ttft)


def send_all(port: int, asks: Sequence[Ask], concurrency: int = 3) -> list[Got]:
    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(lambda ask: send(port, ask), asks))


@contextmanager
def tap(server: VllmServer, folder: Path, *flags: str) -> Iterator[tuple[int, Exporter]]:
    """Run an exporter with a tap before the server; return the tap's port, and the exporter."""
    port = free_port()
    arguments = ("--tap.listen-address", f"{HOST}:{port}", "--requests.type-header", "X-Request-Type", *flags)
    spec = {"method": "draft_model", "num_speculative_tokens": K}
    with Exporter(server.url, folder, speculation=spec, arguments=arguments) as running:
        yield port, running


@pytest.fixture(scope="module")
def server(vllm_python: Path, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    speculation = {
        "method": "draft_model",
        "model": str(models / "draft-0.02"),
        "num_speculative_tokens": K,
    }
    folder = tmp_path_factory.mktemp("server")
    with VllmServer(vllm_python, models / "target", folder, speculation=speculation) as running:
        yield running


@dataclass(frozen=True)
class Story:
    """A mixed load, what its clients were told, and what was published."""

    got: list[Got]
    silent: list[Got]
    scrape: Scrape
    snapshot: Any


@pytest.fixture(scope="module")
def story(server: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> Story:
    asks = [
        Ask(
            REPETITIVE_PROMPTS[index % len(REPETITIVE_PROMPTS)],
            temperature=(0.0, 1.0, 0.4, None, 0.6, 1.3)[(index // 4) % 6],
            kind=("", "code", "prose")[index % 3],
            api=("completions", "chat")[(index // 2) % 2],
            stream=bool(index % 2),
            seed=index,
        )
        for index in range(72)
    ]
    silent = [
        *(Ask(EASY[0], stream=True, include_usage=False, seed=seed) for seed in range(2)),
        *(Ask(EASY[0], stream=False, choices=2, temperature=1.0, seed=seed) for seed in range(2)),
    ]
    with tap(server, tmp_path_factory.mktemp("mixed"), "--requests.window", "1h") as (port, exporter):
        got, quiet = send_all(port, asks), send_all(port, silent)
        wanted = len(asks) + len(silent)
        exporter.wait_for(lambda found: found.sum("request_observations_total") == wanted)
        time.sleep(1.1)  # what is judged is drawn once a second
        return Story(got, quiet, exporter.scrape(), exporter.snapshot())


def test_server_samples_at_the_temperature_that_it_is_asked_for(server: VllmServer) -> None:
    """Without which a mixed load would not be one; see `plugin/vllm_cpu_sampling.py`."""

    def ask(temperature: float) -> list[Got]:
        asks = [Ask(EASY[0], temperature=temperature, seed=seed) for seed in range(4)]
        return send_all(server.port, asks, concurrency=1)

    cold, hot = ask(0.001), ask(1.0)
    assert min(one.ratio or 0.0 for one in cold) > 0.3, "next to nothing is next to greedy"
    assert max(one.ratio or 0.0 for one in hot) < 0.1, "at 1, a random model hardly prefers a token"
    assert [one.record for one in ask(1.0)] == [one.record for one in hot], "it keeps to no seed"


def by_group(got: Sequence[Got]) -> dict[tuple[str, str], list[Got]]:
    groups: dict[tuple[str, str], list[Got]] = {}
    for one in got:
        groups.setdefault((one.bucket, one.kind), []).append(one)
    return groups


def test_load_is_really_mixed(story: Story) -> None:
    assert len(by_group(story.got)) >= 12
    assert {one.outcome for one in story.got} >= {"loses", "gains"}


def test_every_request_is_observed_once(story: Story) -> None:
    told = story.scrape.by("record", "request_observations_total", source="tap")
    drafted = sum(one.ratio is not None for one in story.got)
    assert told["detailed"] == drafted
    assert told["not_drafted"] == sum(one.record is not None and one.ratio is None for one in story.got)
    assert told["none"] == len(story.silent) + sum(one.record is None for one in story.got)
    assert told["malformed"] == 0
    assert story.scrape.sum("tap_unobserved_total") == 0


def test_acceptance_histograms_are_those_of_the_clients(story: Story) -> None:
    bounds = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9, 0.95, 1.0]
    for (temperature, kind), got in by_group(story.got).items():
        labels = {"temperature": temperature, "request_type": kind}
        ratios = [one.ratio for one in got if one.ratio is not None]
        found = story.scrape.by("le", "request_acceptance_ratio_bucket", **labels)
        counts = {float(le): count for le, count in found.items()}
        for at, bound in enumerate(bounds):
            expected = sum(bisect_left(bounds, ratio) <= at for ratio in ratios)
            assert counts.get(bound, 0) == expected, (labels, bound)
        if ratios:
            assert story.scrape.value("request_acceptance_ratio_sum", **labels) == pytest.approx(sum(ratios))


def test_counters_are_the_sums_of_the_records(story: Story) -> None:
    fields = {
        "request_drafts_total": "num_spec_steps",
        "request_draft_tokens_total": "num_draft_tokens",
        "request_accepted_tokens_total": "num_accepted_draft_tokens",
    }
    for (temperature, kind), got in by_group(story.got).items():
        labels = {"temperature": temperature, "request_type": kind}
        for metric, name in fields.items():
            assert story.scrape.value(metric, **labels) == sum(
                one.record[name] for one in got if one.record is not None
            ), (metric, labels)


def test_positions_have_the_drafts_that_reached_them_as_denominator(story: Story) -> None:
    drafted, accepted = Counter[int](), Counter[int]()
    for one in story.got:
        if one.record is None:
            continue
        steps = zip(one.record["per_step_drafted"], one.record["per_step_accepted"], strict=True)
        for length, taken in steps:
            drafted.update(range(length))
            accepted.update(range(taken))
    for position in range(K):
        at = {"position": str(position)}
        assert story.scrape.value("request_drafted_per_position_total", **at) == drafted[position]
        assert story.scrape.value("request_accepted_per_position_total", **at) == accepted[position]
        ratio = story.scrape.value("request_position_acceptance_ratio", **at)
        assert ratio == pytest.approx(accepted[position] / drafted[position])


def test_outcomes_and_their_tokens_follow_the_published_zones(story: Story) -> None:
    requests, tokens = Counter[str](), Counter[str]()
    for one in story.got:
        if one.outcome is not None:
            requests[one.outcome] += 1
            tokens[one.outcome] += one.tokens or 0
    for outcome in ("loses", "break_even", "gains"):
        assert story.scrape.sum("request_outcomes_total", outcome=outcome) == requests[outcome]
        assert story.scrape.sum("request_generation_tokens_total", outcome=outcome) == tokens[outcome]
    losing = requests["loses"] / requests.total()
    assert story.scrape.value("request_losing_ratio") == pytest.approx(losing)
    assert story.scrape.value("request_losing_tokens_ratio") == pytest.approx(
        tokens["loses"] / tokens.total()
    )


def test_percentiles_are_those_of_the_clients_ratios(story: Story) -> None:
    """Rounded down to a thousandth, as the metric says of itself."""
    thousandths = sorted(
        1000 * one.record["num_accepted_draft_tokens"] // one.record["num_draft_tokens"]
        for one in story.got
        if one.record is not None and one.ratio is not None
    )
    for percentile in (10, 50, 90):
        rank = -(-percentile * len(thousandths) // 100)
        found = story.scrape.value("request_acceptance_ratio_percentile", percentile=str(percentile))
        assert found == thousandths[rank - 1] / 1000


def test_streams_have_times_and_the_others_none(story: Story) -> None:
    streamed = [one for one in (*story.got, *story.silent) if one.ask.stream]
    assert story.scrape.sum("request_time_to_first_token_seconds_count") == len(streamed)
    counted = [one for one in streamed if one.tokens is not None]
    assert story.scrape.sum("request_time_per_output_token_seconds_count") == len(counted)
    seen = sum(one.ttft for one in streamed if one.ttft is not None)
    found = story.scrape.sum("request_time_to_first_token_seconds_sum")
    assert found is not None
    # The clients' threads wait for the processor too, and on a busy machine longer than for the server.
    assert 0.05 * seen < found <= seen


def test_snapshot_names_the_worst_requests_without_saying_what_they_said(story: Story) -> None:
    (model,) = story.snapshot["requests"]["models"]
    ratios = sorted(
        one.ratio
        for one in story.got
        if one.record is not None and one.record["num_spec_steps"] >= 5
        if one.ratio is not None
    )
    worst = [request["acceptance_ratio"] for request in model["worst"]]
    assert worst == pytest.approx(ratios[: len(worst)])
    assert all(request["request_id"] for request in model["worst"])
    text = json.dumps(story.snapshot)
    assert not any(prompt[:20] in text for prompt in REPETITIVE_PROMPTS)


def test_sixty_forty_looks_healthy_on_the_mean_and_is_flagged(server: VllmServer, tmp_path: Path) -> None:
    asks = [
        Ask(EASY[index % 2], kind="code", seed=index, max_tokens=60)
        if index % 5 < 3
        else Ask(HARD[0], kind="prose", seed=index, max_tokens=60)
        for index in range(60)
    ]
    with tap(server, tmp_path) as (port, exporter):
        got = send_all(port, asks)
        exporter.wait_for(lambda found: found.sum("request_outcomes_total") == len(asks))
        time.sleep(1.1)
        scrape, snapshot = exporter.scrape(), exporter.snapshot()
    ratios = {
        kind: [one.ratio for one in got if one.kind == kind and one.ratio is not None]
        for kind in ("code", "prose")
    }
    assert min(ratios["code"]) > 0.65
    assert max(ratios["prose"]) < 0.5
    (model,) = snapshot["requests"]["models"]
    assert model["acceptance_ratio"] >= 0.6, "the mean does not look healthy"
    assert scrape.value("request_workload_mixed") == 1
    found = " ".join(finding["text"] for finding in model["findings"])
    assert "looks healthy and describes neither" in found
    assert "40% of the requests lose" in found
    assert model["routing"]["request_types"] == ["prose"]
    assert model["routing"]["requests_ratio"] == pytest.approx(0.4)


# --- transparency


@pytest.fixture(scope="module")
def varying(
    vllm_python: Path, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmServer]:
    speculation = {
        "method": "ngram",
        "num_speculative_tokens": K,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 1,
    }
    folder = tmp_path_factory.mktemp("varying")
    with VllmServer(vllm_python, models / "target", folder, speculation=speculation) as running:
        yield running


def _chat(client: openai.OpenAI, **options: Any) -> list[Any]:
    answer = client.chat.completions.create(
        model=MODEL_NAME,
        messages=[{"role": "user", "content": REPETITIVE_PROMPTS[0]}],
        max_tokens=32,
        seed=5,
        extra_body={"ignore_eos": True},
        **options,
    )
    return _events(answer, stream=bool(options.get("stream")))


def _completion(client: openai.OpenAI, **options: Any) -> list[Any]:
    answer = client.completions.create(
        model=MODEL_NAME,
        prompt=REPETITIVE_PROMPTS[1],
        max_tokens=32,
        seed=5,
        extra_body={"ignore_eos": True},
        **options,
    )
    return _events(answer, stream=bool(options.get("stream")))


def _events(answer: Any, *, stream: bool) -> list[Any]:
    """Return the events of an answer without what differs from request to request."""
    events = [event.model_dump() for event in answer] if stream else [answer.model_dump()]
    for event in events:
        del event["id"], event["created"]
    return events


class Recorder:
    """Stands between tap and server, and keeps what the server sends on each connection."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._sockets = [socket.create_server((HOST, 0))]
        self._threads = [threading.Thread(target=self._accept)]
        self.port: int = self._sockets[0].getsockname()[1]
        self.sent: list[bytearray] = []

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wake who waits, await its end, and only then close: the listener first, so that no more come."""
        _wake(self._sockets[0])
        self._threads[0].join()
        for one in self._sockets[1:]:
            _wake(one)
        for thread in self._threads[1:]:
            thread.join()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._sockets[0].accept()
                self._sockets.append(client)
                server = socket.create_connection((HOST, self._server))
                self._sockets.append(server)
                self.sent.append(bytearray())
                for ends in ((client, server, bytearray()), (server, client, self.sent[-1])):
                    self._threads.append(threading.Thread(target=_copy, args=ends))
                    self._threads[-1].start()


def _wake(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            kept += data
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("stream", [True, False])
def test_client_gets_the_very_bytes_that_the_server_sent(
    server: VllmServer, tmp_path: Path, api: str, stream: bool
) -> None:
    ask = Ask(EASY[0], api=api, stream=stream)
    body = json.dumps(ask.body()).encode()
    head = (
        f"POST {ask.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    received = bytearray()
    with (
        Recorder(server.port) as recorder,
        tap(server, tmp_path, "--tap.upstream", f"http://{HOST}:{recorder.port}") as (port, exporter),
        socket.create_connection((HOST, port), timeout=60) as client,
    ):
        client.sendall(head.encode() + body)
        while data := client.recv(65536):
            received += data
        exporter.wait_for(lambda found: found.sum("request_observations_total") == 1)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert [received] == recorder.sent


def _steady(events: list[Any]) -> tuple[list[Any], str]:
    """Return what the events say of their form, and the text: steps may split a text differently."""
    text = "".join(
        choice.get("text") or (choice.get("delta") or choice.get("message") or {}).get("content") or ""
        for event in events
        for choice in event["choices"]
    )
    ends = [
        choice["finish_reason"] for event in events for choice in event["choices"] if choice["finish_reason"]
    ]
    usage = [event.get("usage") for event in events if event.get("usage")]
    return [ends, usage, sorted({*events[0]}), "metrics" in events[-1]], text


@pytest.mark.parametrize("asking", ["false", "true"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafter", ["server", "varying"])
def test_openai_client_gets_the_same_with_and_without_the_tap(
    request: pytest.FixtureRequest, tmp_path: Path, asking: str, temperature: float, drafter: str
) -> None:
    server: VllmServer = request.getfixturevalue(drafter)
    with tap(server, tmp_path, "--tap.ask-for-usage", asking) as (port, _):
        clients = [
            openai.OpenAI(base_url=f"http://{HOST}:{at}/v1", api_key="none", max_retries=0)
            for at in (server.port, port)
        ]
        for create in (_chat, _completion):
            create(clients[0], temperature=temperature, stream=False)  # the first one fills the prefix cache
            for options in (
                {"stream": False},
                {"stream": True},
                {"stream": True, "stream_options": {"include_usage": True}},
            ):
                direct, tapped = (create(one, temperature=temperature, **options) for one in clients)
                assert _steady(tapped) == _steady(direct), (create, options)
        listed = [[model.id for model in one.models.list()] for one in clients]
        assert listed[0] == listed[1] == [MODEL_NAME]
        errors = []
        for one in clients:
            with pytest.raises(openai.APIStatusError) as raised:
                one.completions.create(model="nobody", prompt="x")
            errors.append((raised.value.status_code, raised.value.body))
        assert errors[0] == errors[1]


def test_asking_gives_every_stream_a_record(server: VllmServer, tmp_path: Path) -> None:
    asks = [Ask(EASY[0], include_usage=False, api=api, seed=1) for api in ("chat", "completions")]
    with tap(server, tmp_path, "--tap.ask-for-usage", "true") as (port, exporter):
        got = send_all(port, asks)
        scrape = exporter.wait_for(lambda found: found.sum("request_observations_total") == len(asks))
    assert [one.record for one in got] == [None, None], "the extra event was not taken out"
    assert scrape.value("request_observations_total", source="tap", record="detailed") == len(asks)


def test_client_that_leaves_ends_its_request_at_the_server(server: VllmServer, tmp_path: Path) -> None:
    body = json.dumps(Ask(EASY[0], max_tokens=900).body()).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with tap(server, tmp_path) as (port, exporter):
        with socket.create_connection((HOST, port), timeout=30) as client:
            client.sendall(head.encode() + body)
            assert b"200 OK" in client.recv(4096)
        deadline = time.monotonic() + 20
        running = 1.0
        while running and time.monotonic() < deadline:
            found = Scrape.parse(server.metrics().replace("vllm:", "vllm_specdec_"))
            running = found.sum("num_requests_running") or 0.0
        assert running == 0
        scrape = exporter.wait_for(lambda found: found.value("tap_unobserved_total", reason="aborted") == 1)
        assert scrape.value("tap_unobserved_total", reason="aborted") == 1
        assert scrape.value("tap_open_connections") == 0


# --- drafts of varying length


def test_records_repair_the_bias_of_drafts_that_vary_and_bring_advice_on_k(
    varying: VllmServer, tmp_path: Path
) -> None:
    asks = [Ask(REPETITIVE_PROMPTS[index % 6], seed=index, max_tokens=80) for index in range(48)]
    flags = ("--threshold", "advice_minimum_drafts=50", "--threshold", "minimum_drafts=20")
    spec = {"method": "ngram", "num_speculative_tokens": K}
    port = free_port()
    arguments = ("--tap.listen-address", f"{HOST}:{port}", "--window", "2m", *flags)
    with Exporter(varying.url, tmp_path, speculation=spec, arguments=arguments) as exporter:
        got = send_all(port, asks)
        scrape = exporter.wait_for(
            lambda found: found.states("recommendation", "action") not in (set(), {"insufficient_data"})
        )
    steps = [
        step
        for one in got
        if one.record is not None
        for step in zip(one.record["per_step_drafted"], one.record["per_step_accepted"], strict=True)
    ]
    assert sum(drafted for drafted, _ in steps) < 0.95 * K * len(steps), "drafts do not vary"
    for position in range(K):
        true = sum(a > position for _, a in steps) / sum(d > position for d, _ in steps)
        at = {"position": str(position)}
        assert scrape.value("request_position_acceptance_ratio", **at) == pytest.approx(true)
        pooled = scrape.value("position_acceptance_ratio", window="2m", **at)
        assert pooled is not None
        if position:
            assert pooled < true, "nothing was understated"
    assert scrape.states("recommendation", "action") - {"insufficient_data"}
