"""What vLLM counts, as docs/reference/vllm-counts.md has it: each row that a server
shows, by its own `/metrics`.
"""

import http.client
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.exporter import Metrics
from support.programs import eventually

from .conftest import Servers, by, ngram, total
from .server import ENVIRONMENT, HOST, MODEL_NAME, REPETITIVE_PROMPTS, VllmServer

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

K = 4
PREFIX = "vllm:spec_decode_num_"
#: The series of each count.
SERIES = {
    "drafts": f"{PREFIX}drafts_total",
    "draft_tokens": f"{PREFIX}draft_tokens_total",
    "accepted": f"{PREFIX}accepted_tokens_total",
    "generated": "vllm:generation_tokens_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "first_tokens": "vllm:time_to_first_token_seconds_count",
    "steps": "vllm:inter_token_latency_seconds_count",
    "finished": "vllm:request_success_total",
    "latencies": "vllm:e2e_request_latency_seconds_count",
    "times_per_token": "vllm:request_time_per_output_token_seconds_count",
    "decode_seconds": "vllm:request_decode_time_seconds_sum",
    "generated_by_finished": "vllm:request_generation_tokens_sum",
    "cache_queries": "vllm:prefix_cache_queries_total",
    "preemptions": "vllm:num_preemptions_total",
}
Counts = dict[str, float]


def counts(server: VllmServer) -> Counts:
    """Return all counts of a server once it is idle and they stand still."""

    def seen() -> Counts:
        metrics = Metrics(server.metrics())
        busy = total(metrics, "vllm:num_requests_running") or 0
        busy += total(metrics, "vllm:num_requests_waiting") or 0
        values = {name: total(metrics, series) or 0 for name, series in SERIES.items()}
        return values | {"busy": busy}

    def settled() -> Counts | None:
        first = seen()
        time.sleep(0.3)
        if first["busy"] or seen() != first:
            return None
        return first

    return eventually(settled, 120)


def increase(server: VllmServer, act: Callable[[], object]) -> Counts:
    """Return what a server counts of something that is done to it."""
    earlier = counts(server)
    act()
    return {name: value - earlier[name] for name, value in counts(server).items()}


def complete(server: VllmServer, prompt: object, **fields: Any) -> dict[str, Any]:
    """Return the answer to a request that does not stream."""
    body = {"model": MODEL_NAME, "prompt": prompt, "temperature": 0, **fields}
    connection = http.client.HTTPConnection(HOST, server.port, timeout=120)
    try:
        header = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), header)
        answer = connection.getresponse()
        document = json.loads(answer.read())
        assert answer.status == 200, document
        return dict(document)
    finally:
        connection.close()


def tokens(number: int, seed: int) -> list[int]:
    """Return a prompt of so many token ids that no other seed begins with."""
    return [10 + (seed * 37 + index * 61) % 800 for index in range(number)]


def record_of(answer: dict[str, Any]) -> dict[str, Any] | None:
    return (answer.get("metrics") or {}).get("speculative_decoding")


# --- ends of answers


def test_what_lies_behind_max_tokens_is_accepted_and_not_generated(
    server: VllmServer,
) -> None:
    def ask() -> None:
        for prompt in REPETITIVE_PROMPTS:
            complete(server, prompt, max_tokens=2, ignore_eos=True)

    counted = increase(server, ask)
    number = len(REPETITIVE_PROMPTS)
    assert counted["generated"] == 2 * number
    assert counted["drafts"] == number
    assert counted["draft_tokens"] == K * number
    # A draft has one token left to give.
    assert counted["accepted"] > number


def test_what_lies_behind_a_stop_string_is_generated_too(server: VllmServer) -> None:
    tokens_at_most = 60
    answers = []

    def ask() -> None:
        for prompt in REPETITIVE_PROMPTS * 2:
            seed = len(answers)
            answers.append(
                complete(
                    server,
                    f"{seed} {prompt}",
                    max_tokens=tokens_at_most,
                    stop=["e", "a"],
                    ignore_eos=True,
                )
            )

    counted = increase(server, ask)
    delivered = sum(answer["usage"]["completion_tokens"] for answer in answers)
    # In its last step the engine ends a request itself, with a record.
    stopped = [
        answer
        for answer in answers
        if answer["choices"][0]["finish_reason"] == "stop"
        and answer["usage"]["completion_tokens"] < tokens_at_most - K
    ]
    assert counted["generated"] > delivered
    assert stopped
    assert all(record_of(answer) is None for answer in stopped)


def close_after(server: VllmServer, events: int) -> None:
    """Begin a long stream, and close it after so many events."""
    body = {
        "model": MODEL_NAME,
        "prompt": REPETITIVE_PROMPTS[2],
        "max_tokens": 900,
        "ignore_eos": True,
        "stream": True,
    }
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    header = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body), header)
    answer = connection.getresponse()
    for _ in range(2 * events):  # an event is followed by an empty line
        answer.readline()
    answer.close()
    connection.close()


def test_a_closed_stream_has_tokens_and_no_finished_request(server: VllmServer) -> None:
    """Nor has it a latency, so sums of times belong to the tokens of finished
    requests.
    """
    counted = increase(server, lambda: close_after(server, 10))
    assert counted["first_tokens"] == 1
    assert min(counted["drafts"], counted["steps"]) >= 9
    assert counted["generated"] >= 10
    for name in ("finished", "latencies", "times_per_token"):
        assert counted[name] == 0, name
    assert counted["decode_seconds"] == counted["generated_by_finished"] == 0


# --- several answers to one request


def test_each_of_n_answers_is_a_request(server: VllmServer) -> None:
    prompt = tokens(20, seed=1)
    answers = []

    def ask() -> None:
        answers.append(complete(server, prompt, n=3, temperature=1.0, max_tokens=20))

    counted = increase(server, ask)
    assert counted["prompt_tokens"] == 3 * len(prompt)
    for name in ("first_tokens", "finished", "latencies"):
        assert counted[name] == 3, name
    assert record_of(answers[0]) is None


def test_a_beam_search_is_a_request_for_each_token_and_beam(server: VllmServer) -> None:
    """None of these has a second token, so none has a draft."""

    def ask() -> None:
        prompt = tokens(20, seed=2)
        complete(server, prompt, n=4, use_beam_search=True, max_tokens=8)

    counted = increase(server, ask)
    assert counted["finished"] == counted["first_tokens"] == 29  # 1 + 7 steps of 4
    assert counted["generated"] == 29
    assert counted["prompt_tokens"] == 692
    assert counted["drafts"] == counted["steps"] == 0


# --- drafts that nobody made, and drafts that were dropped


def padded(server: VllmServer) -> Counts:
    """Return what is counted of a prompt of which all but a token are in the cache."""
    (labels,) = Metrics(server.metrics()).labels("vllm:cache_config_info")
    prompt = tokens(2 * int(labels["block_size"]) + 1, seed=3)
    complete(server, prompt, max_tokens=1)
    return increase(server, lambda: complete(server, prompt, max_tokens=1))


def test_one_uncached_token_is_padded_with_a_draft(server: VllmServer) -> None:
    counted = padded(server)
    assert counted["drafts"] == 1
    assert counted["draft_tokens"] == K
    assert counted["accepted"] == 0
    assert counted["generated"] == counted["first_tokens"] == 1
    assert counted["steps"] == 0


DIGITS = {"structured_outputs": {"regex": "[0-9]{60}"}, "max_tokens": 60}


def test_drafts_that_a_grammar_refuses_whole_are_not_counted(
    server: VllmServer,
) -> None:
    """Where scheduling is synchronous, as on a CPU; nor are the tokens that it refuses
    of others. Outside a grammar, this drafter drafts in every step.
    """
    counted = increase(server, lambda: complete(server, "Count:", **DIGITS))
    steps = counted["generated"]
    assert steps > 10
    assert counted["drafts"] <= counted["draft_tokens"] < steps / 2


# --- a K schedule, and a cache that is too small


@pytest.fixture(scope="module")
def scheduled(servers: Servers) -> Iterator[VllmServer]:
    """A server with K=4 for one request and 1 for more, small steps and few blocks."""
    speculation = servers.drafter("draft-0.02", K)
    speculation["num_speculative_tokens_per_batch_size"] = [[1, 1, K], [2, 8, 1]]
    arguments = ("--max-num-batched-tokens", "64", "--max-num-seqs", "8")
    arguments += ("--num-gpu-blocks-override", "10")
    with servers.new("target", speculation, *arguments) as server:
        yield server


def test_nothing_is_padded_under_a_k_schedule(scheduled: VllmServer) -> None:
    assert padded(scheduled)["drafts"] == 0


def test_prompt_chunks_lower_the_k_of_requests_that_decode(
    scheduled: VllmServer,
) -> None:
    """A request that only computes its prompt counts in the batch size of the
    schedule.
    """
    with ThreadPoolExecutor(1) as pool:
        decoding = pool.submit(
            complete, scheduled, "Once", max_tokens=600, ignore_eos=True
        )
        eventually(
            lambda: total(Metrics(scheduled.metrics()), "vllm:num_requests_running")
        )
        complete(scheduled, tokens(600, seed=4), max_tokens=1)
        record = record_of(decoding.result(timeout=120))
    drafted = record["per_step_drafted"]
    # Chunks of what a step of 64 tokens has left for the prompt.
    assert 9 <= drafted.count(1) <= 14
    assert drafted[0] == K
    assert drafted.count(1) + drafted.count(K) >= len(drafted) - 1


def test_a_preempted_request_is_counted_once(scheduled: VllmServer) -> None:
    """It is computed twice."""

    def ask() -> None:
        with ThreadPoolExecutor(2) as pool:
            for seed in (5, 6):
                prompt = tokens(300, seed)
                pool.submit(
                    complete, scheduled, prompt, max_tokens=420, ignore_eos=True
                )

    counted = increase(scheduled, ask)
    assert counted["preemptions"] >= 1
    assert counted["first_tokens"] == counted["finished"] == 2
    assert counted["prompt_tokens"] == counted["cache_queries"] == 600
    assert counted["generated"] == 840


# --- a folder of counts that outlives the server


@dataclass(frozen=True)
class Kept:
    """A server that began anew with K=2 on the folder of its predecessor with K=4."""

    digits: Counts  # of the first life, under a grammar
    ended: Counts
    began: Counts
    first: Metrics
    second: Metrics


@pytest.fixture(scope="module")
def kept(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path_factory.mktemp("counts"))}
    server = servers.new("target", ngram(K), environment=folder)
    with server:
        first = Metrics(server.metrics())
        digits = increase(server, lambda: complete(server, "Count:", **DIGITS))
        ended = counts(server)
        server.restart(ngram(2))
        server.wait_until_ready()
        second = Metrics(server.metrics())
        return Kept(
            digits, ended=ended, began=counts(server), first=first, second=second
        )


def test_ngram_drafts_what_a_grammar_allows(kept: Kept) -> None:
    """It looks up the digits that are there, so some drafts are allowed, in part."""
    drafts = kept.digits["drafts"]
    assert 0 < drafts <= kept.digits["draft_tokens"] < K * drafts


def test_counts_in_a_kept_folder_go_on_with_the_old_k(kept: Kept) -> None:
    assert kept.ended["drafts"] > 0
    assert kept.began["drafts"] == kept.ended["drafts"]
    positions = by(kept.second, "position", f"{PREFIX}accepted_tokens_per_pos_total")
    assert set(positions) == {"0", "1", "2", "3"}
    assert not any(name.endswith("_created") for name in kept.first.samples)


# --- a folder that speculates by itself

SPECULATORS = {
    "speculators_model_type": "eagle3",
    "transformer_layer_config": {"model_type": "llama"},
    "speculators_config": {
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
        "verifier": {"name_or_path": "verifier"},
    },
}
RESOLVE = """
import json, sys
from vllm.transformers_utils.config import maybe_override_with_speculators

given = [None, {"num_speculative_tokens": 2, "method": "ngram"}]
for config in given:
    resolved = maybe_override_with_speculators(
        sys.argv[1], None, False, vllm_speculative_config=config
    )
    print(json.dumps([resolved[0], resolved[2]]))
"""


def test_a_speculators_folder_speculates_without_a_flag(
    vllm_python: Path, tmp_path: Path
) -> None:
    """K beside it counts, another method does not."""
    (tmp_path / "config.json").write_text(json.dumps(SPECULATORS))
    done = subprocess.run(
        [vllm_python, "-c", RESOLVE, tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, **ENVIRONMENT},
        timeout=300,
        check=True,
    )
    alone, beside = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    drafter = {"method": "eagle3", "model": str(tmp_path)}
    assert alone == ["verifier", {**drafter, "num_speculative_tokens": 5}]
    assert beside == ["verifier", {**drafter, "num_speculative_tokens": 2}]
