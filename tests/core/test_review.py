"""Cases that no module's own tests would think of: found by reading, kept as regressions."""

import pytest

from support.builders import counters, lines
from support.copies import replace
from vllm_specdec_exporter import engines as dialects
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.engines.reading import Counters, EngineKey, EngineReading, Load, Reading
from vllm_specdec_exporter.exposition import text as exposition
from vllm_specdec_exporter.exposition.text import MalformedExposition
from vllm_specdec_exporter.judgement.quality import judge_quality
from vllm_specdec_exporter.measures.measures import Measures
from vllm_specdec_exporter.observe.pipeline import (
    EngineState,
    Settings,
    Speculation,
    interrupt,
    process_reading,
)
from vllm_specdec_exporter.observe.result import EngineResult

KEY = EngineKey("m", "0")


def run(*answers: Counters | None) -> EngineResult:
    """Observe the answers five seconds apart; ``None`` is a time in which the server was gone."""
    states: dict[EngineKey, EngineState] = {}
    results: tuple[EngineResult, ...] = ()
    for n, values in enumerate(answers):
        if values is None:
            states = interrupt(states)
            continue
        reading = Reading("vllm-v1", (EngineReading(KEY, values, Load()),))
        states, results = process_reading(states, reading, 5.0 * n, Settings())
    return results[0]


def test_nothing_good_is_said_of_what_is_not_known() -> None:
    """Without length and ratio there is no level; with one of the two it is fair at best."""
    nothing = Measures("5m", 300, 1000)
    known = (nothing, replace(nothing, mean_acceptance_length=5.0), replace(nothing, acceptance_ratio=0.99))
    levels = [judge_quality(measures, (), Thresholds()).level for measures in known]

    assert levels == [None, "fair", "fair"]


def test_a_hidden_restart_gives_itself_away() -> None:
    """A process that counted past all old values unseen has fewer drafts of few accepted tokens."""
    old, new = counters(100, [10, 0, 0]), counters(200, [180, 100, 40])
    result = run(old, None, new)

    assert result.accepted_tokens_per_draft.buckets == (20, 100, 160, 200)  # type: ignore[union-attr]
    assert (result.windows, result.engine_resets_total) == ((), 1)


def test_another_k_than_the_counters_show() -> None:
    """A server whose positions do not fit --spec.config is pointed out."""
    reading = Reading("vllm-v1", (EngineReading(KEY, counters(100, [50, 20]), Load()),))
    told = Settings(speculation=Speculation(configured=True, num_speculative_tokens=3))
    _, (result,) = process_reading({}, reading, 0.0, told)

    assert "the server counts 2 positions, but --spec.config says K=3" in [f.text for f in result.findings]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (lines(f'vllm:generation_tokens_total{{model_name="{"x" * 2000}"}} 1'), "label of more than"),
        (lines(f'vllm:generation_tokens_total{{a="{"x" * 20000}"}} 1'), "selected lines"),
        (
            lines(*(f'vllm:generation_tokens_total{{pid="{i}"}} 1' for i in range(exposition.MAX_LINES + 1))),
            "selected lines",
        ),
    ],
)
def test_a_hostile_answer_is_refused_early(text: bytes, why: str) -> None:
    """What no server prints is refused before it costs time or memory."""
    with pytest.raises(MalformedExposition, match=why):
        dialects.read(text)


def test_reasons_speak_of_the_time_that_was_seen() -> None:
    """A window that is not full yet is not called by its whole length."""
    for polls, period in ((3, "10s"), (30, "2m25s"), (61, "5m"), (100, "5m")):
        result = run(*(counters(1000.0 * n, [900.0 * n]) for n in range(polls)))
        assert result.activity.reason.endswith(f" in the last {period}")
