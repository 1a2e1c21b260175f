"""Decay with uptime: slow drift at the same load and traffic, and nothing else."""

from collections.abc import Iterable, Sequence

import pytest

from support.copies import replace
from vllm_specdec_exporter.engines.reading import Counters, EngineKey, EngineReading, Load, Reading, Steps
from vllm_specdec_exporter.measures.uptime import Uptime
from vllm_specdec_exporter.observe.pipeline import Settings, interrupt, process_reading

#: As reported in vLLM's issue 41838: 3.07 to 2.8 within hours.
DRIFT = (3.07, 3.07, 3.02, 2.97, 2.93, 2.89, 2.86, 2.83, 2.80, 2.80)
KEY = EngineKey("m", "0")


class Server:
    """An engine with K=4 that is polled every five minutes, and what the exporter makes of it."""

    decay: float | None = None

    def __init__(self) -> None:
        self.states: dict[EngineKey, object] = {}
        self.drafts = self.accepted = self.requests = self.prompts = self.drafted = 0.0
        self.time = 0.0

    def run(
        self,
        lengths: Iterable[float],
        *,
        drafts: float = 12_000,
        running: float = 8,
        prompt: float = 500,
        drafted: float = 4,
    ) -> list[str]:
        """Serve an hour with each of these lengths; return what was found at the end about uptime."""
        found: Sequence[str] = ()
        for length in lengths:
            for _ in range(12):
                self.time += 300
                self.drafts += drafts / 12
                self.accepted += (length - 1) * drafts / 12
                self.drafted += drafted * drafts / 12
                self.requests += drafts / 12 / 100
                self.prompts += prompt * drafts / 12 / 100
                found = self.poll(running)
        return list(found)

    def poll(self, running: float) -> list[str]:
        counters = Counters(
            drafts=self.drafts,
            draft_tokens=self.drafted,
            accepted_tokens=self.accepted,
            accepted_tokens_per_position=(self.accepted / 4,) * 4,
            generation_tokens=self.drafts + self.accepted,
        )
        steps = Steps(prompt_tokens=self.prompts, requests=self.requests)
        engine = EngineReading(KEY, counters, Load(requests_running=running), steps=steps)
        reading = Reading("vllm-v1", (engine,))
        self.states, (result,) = process_reading(self.states, reading, self.time, Settings(slack=150.0))  # type: ignore[arg-type,assignment]
        self.decay = result.uptime_decay_ratio
        return [finding.text for finding in result.findings if "little by little" in finding.text]


def test_a_length_that_falls_little_by_little_is_found_and_a_restart_ends_it() -> None:
    server = Server()
    assert server.run(DRIFT[:6]) == []
    (text,) = server.run(DRIFT[6:])
    assert "from 3.07 in the first hours that the exporter saw of this run to 2.81, with draft length" in text
    assert server.decay == pytest.approx(1 - 2.81 / 3.07, abs=0.003)
    assert len(server.run([2.8] * 30)) == 1  # also once the fall itself is longer ago than a day

    server.drafts = server.accepted = server.requests = 0
    server.prompts = server.drafted = 0
    assert server.run([3.07] * 3) == []
    assert server.decay is None  # two hours of the new run, and no others to compare them with
    assert server.run([3.07] * 3) == []
    assert server.decay == 0


def test_nights_say_nothing_of_decay() -> None:
    """Hours of another load neither find it nor end it: nobody is told every morning anew."""
    server = Server()
    server.run(DRIFT)
    for _ in range(2):
        assert len(server.run([3.4] * 12, running=2)) == 1
        assert len(server.run([2.81] * 12)) == 1
    assert len(server.run([3.4] * 12, running=2)) == 1
    assert server.run([3.05] * 3) == []


@pytest.mark.parametrize(
    ("lengths", "then"),
    [
        pytest.param([3.07] * 5 + [2.6] * 5, {}, id="another traffic from one hour to the next"),
        pytest.param([3.07, 2.98] * 5, {}, id="steady within a few percent"),
        pytest.param(DRIFT, {"running": 30}, id="another load"),
        pytest.param(DRIFT, {"prompt": 900}, id="longer prompts"),
        pytest.param(DRIFT, {"drafted": 3.5}, id="another K"),
        pytest.param(DRIFT, {"drafts": 1000}, id="too few drafts"),
        pytest.param(tuple(reversed(DRIFT)), {}, id="better with uptime"),
    ],
)
def test_a_change_of_load_or_traffic_is_no_decay(lengths: Sequence[float], then: dict[str, float]) -> None:
    server = Server()
    server.run(lengths[:2])
    assert server.run(lengths[2:], **then) == []


def test_a_failed_poll_costs_the_hour_and_not_the_reference() -> None:
    server = Server()
    server.run(DRIFT[:5])
    server.states = interrupt(server.states)  # type: ignore[arg-type,assignment]
    assert len(server.run(DRIFT[4:])) == 1


def test_memory_is_bounded() -> None:
    server = Server()
    server.run([3.0] * 30)
    uptime = server.states[KEY].uptime  # type: ignore[attr-defined]
    assert (len(uptime.first), len(uptime.latest)) == (2, 24)
    assert uptime.begun.latencies is None
    same = replace(uptime)
    assert same.add(replace(uptime.begun, time=uptime.begun.time + 60), interrupted=False) is same
    assert Uptime().add(None, interrupted=True) == Uptime()
