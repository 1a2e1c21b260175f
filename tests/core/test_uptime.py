"""Decay with uptime: slow drift at the same load and traffic, and nothing else."""

from collections.abc import Iterable, Sequence

import pytest

from economics.servers import KEY, Server
from support.copies import replace
from vllm_specdec_exporter.measures.uptime import Uptime
from vllm_specdec_exporter.observe.pipeline import interrupt
from vllm_specdec_exporter.observe.settings import Settings

#: As reported in vLLM's issue 41838: 3.07 to 2.8 within hours.
DRIFT = (3.07, 3.07, 3.02, 2.97, 2.93, 2.89, 2.86, 2.83, 2.80, 2.80)


def started(previous: Server | None = None) -> Server:
    """An engine with K=4, perhaps in the place of another one."""
    server = Server(Settings(slack=150.0), 4, prompt_tokens=0.0, requests=0.0)
    if previous is None:
        return server
    return replace(server, time=previous.time, states=previous.states)


def run(
    server: Server,
    lengths: Iterable[float],
    *,
    drafts: float = 12_000,
    running: float = 8,
    prompt: float = 500,
    drafted: float = 4,
) -> list[str]:
    """Serve an hour with each of these lengths; return what was found at the end about
    uptime.
    """
    server.batch = running
    for length in lengths:
        # An hour, in windows of five minutes.
        for _ in range(12):
            server.add(
                drafts / 12, ((length - 1) * drafts / 48,) * 4, drafted * drafts / 12
            )
            server.requests += drafts / 1200
            server.prompt_tokens += prompt * drafts / 1200
            result = server.poll(after=300)
    return [
        finding.text
        for finding in result.findings
        if "little by little" in finding.text
    ]


def test_a_length_that_falls_little_by_little_is_found_and_a_restart_ends_it() -> None:
    server = started()
    assert run(server, DRIFT[:6]) == []
    (text,) = run(server, DRIFT[6:])
    assert (
        "from 3.07 in the first hours that the exporter saw of this run to 2.81, "
        "with draft length"
    ) in text
    assert server.latest.uptime_decay_ratio == pytest.approx(1 - 2.81 / 3.07, abs=0.003)
    # also once the fall itself is longer ago than a day
    assert len(run(server, [2.8] * 30)) == 1

    server = started(server)
    assert run(server, [3.07] * 3) == []
    assert (
        server.latest.uptime_decay_ratio is None
    )  # two hours of the new run, and no others to compare them with
    assert run(server, [3.07] * 3) == []
    assert server.latest.uptime_decay_ratio == 0


def test_hours_with_fewer_drafts_of_the_same_length_are_compared() -> None:
    server = started()
    run(server, DRIFT[:2])
    assert len(run(server, DRIFT[2:], drafts=8000)) == 1


def test_nights_say_nothing_of_decay() -> None:
    """Hours of another load neither find it nor end it: nobody is told every morning
    anew.
    """
    server = started()
    run(server, DRIFT)
    for night in range(2):
        assert len(run(server, [3.4] * 12, running=2)) == 1, night
        assert len(run(server, [2.81] * 12)) == 1, night
    assert len(run(server, [3.4] * 12, running=2)) == 1
    assert run(server, [3.05] * 3) == []


@pytest.mark.parametrize(
    ("lengths", "then"),
    [
        pytest.param(
            [3.07] * 5 + [2.6] * 5, {}, id="another traffic from one hour to the next"
        ),
        pytest.param([3.07, 2.98] * 5, {}, id="steady within a few percent"),
        pytest.param(DRIFT, {"running": 30}, id="another load"),
        pytest.param(DRIFT, {"prompt": 900}, id="longer prompts"),
        pytest.param(DRIFT, {"drafted": 3.5}, id="another K"),
        pytest.param(DRIFT, {"drafts": 1000}, id="too few drafts"),
        pytest.param(tuple(reversed(DRIFT)), {}, id="better with uptime"),
    ],
)
def test_a_change_of_load_or_traffic_is_no_decay(
    lengths: Sequence[float], then: dict[str, float]
) -> None:
    server = started()
    run(server, lengths[:2])
    assert run(server, lengths[2:], **then) == []


def test_a_failed_poll_costs_the_hour_and_not_the_reference() -> None:
    server = started()
    run(server, DRIFT[:5])
    server.states = interrupt(server.states)
    assert len(run(server, DRIFT[4:])) == 1


def test_memory_is_bounded() -> None:
    server = started()
    run(server, [3.0] * 30)
    uptime = server.states[KEY].uptime
    assert (len(uptime.first), len(uptime.latest)) == (2, 24)
    assert uptime.begun.latencies is None
    same = replace(uptime)
    assert (
        same.add(replace(uptime.begun, time=uptime.begun.time + 60), interrupted=False)
        is same
    )
    assert Uptime().add(None, interrupted=True) == Uptime()
