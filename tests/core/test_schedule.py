"""A K schedule in force: judged at the K that it has for the present load."""

import json

import pytest

from support.builders import counters, processed
from support.calibrated import calibrated_file
from support.messages import name_of, values_of
from vllm_specdec_exporter.engines.reading import (
    EngineKey,
    EngineReading,
    Load,
    Reading,
)
from vllm_specdec_exporter.observe.result import EngineResult
from vllm_specdec_exporter.settings.configuration import load

_ACCEPTED = (
    0.70,
    0.52,
    0.40,
    0.31,
    0.24,
    0.18,
    0.14,
    0.11,
    0.10,
    0.09,
    0.08,
    0.07,
    0.06,
    0.05,
    0.045,
    0.04,
)
#: A batch of 30 is in the first row, one of 100 in the second.
_SCHEDULE = [[1, 64, 16], [65, 1024, 8]]


def _scheduled(minutes: int, schedule: list[list[int]]) -> EngineResult:
    """The result after ten minutes with 16 tokens a draft, and `minutes` with 8 of them
    at batch 100.
    """
    readings = []
    for second in range(0, 600 + 60 * minutes + 1, 5):
        full = 1000.0 * min(second, 600)
        cut = 1000.0 * max(0, second - 600)
        positions = tuple(
            share * (full + cut * (i < 8)) for i, share in enumerate(_ACCEPTED)
        )
        counted = counters(full + cut, positions, draft_tokens=16 * full + 8 * cut)
        running = Load(30.0 if second <= 600 else 100.0)
        engine = EngineReading(EngineKey("m", "0"), counted, running)
        readings.append((float(second), Reading("vllm-v1", (engine,))))
    config = {"method": "dflash", "num_speculative_tokens": 16}
    if schedule:
        config["num_speculative_tokens_per_batch_size"] = schedule
    flags = {"cost.file": calibrated_file(), "spec.config": json.dumps(config)}
    (result,) = processed(readings, load(flags, {}).settings)[-1]
    return result


@pytest.mark.parametrize("schedule", [_SCHEDULE, [], [[1, 128, 16], [129, 1024, 8]]])
def test_a_schedule_in_force_is_judged_at_its_k(schedule: list[list[int]]) -> None:
    """Given, only seen, or another: no position that no draft has is one that was never
    accepted.
    """
    deep = _scheduled(0, schedule)
    shallow = _scheduled(6, schedule)

    shown = deep.window("5m"), shallow.window("5m")
    assert [len(window.position_acceptance_ratio) for window in shown if window] == [
        16,
        8,
    ]
    assert [
        round(window.position_decay_ratio or 0, 2) for window in shown if window
    ] == [0.83, 0.77]
    unjudged = [name_of(c.note) for c in shallow.quality.criteria]
    assert "quality.drafts_vary" not in unjudged
    assert name_of(shallow.advice.reason) == "no_advice.drafts_vary"
    assert values_of(shallow.advice.reason) == {"drafted": 8.0, "k": 16}
    assert shallow.num_speculative_tokens == 16
