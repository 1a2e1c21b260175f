"""Answers of a real llama.cpp server at prescribed rates, recorded by `make
test-llamacpp`.
"""

import re

import pytest
from msgspec.structs import replace

from llamacpp.prescribed import COST, REQUESTS, SETS, differences
from support.builders import process_reading, upstream
from vllm_specdec_exporter.economics.cost import (
    Basis,
    CostProfile,
    DraftCost,
    TargetCost,
)
from vllm_specdec_exporter.economics.profiles import CostSettings
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.measures.history import Window
from vllm_specdec_exporter.observe.settings import Settings

KNOWN = CostProfile(
    "known",
    TargetCost(1.0),
    DraftCost(per_position=COST),
    uncertainty=0.05,
    basis=Basis.CALIBRATED,
)
WINDOW = Window(300.0)


@pytest.mark.parametrize("name", SETS)
def test_the_recorded_answer_agrees_with_the_prescribed_rates(name: str) -> None:
    """Before the first request every total is 0, and no position is printed."""
    scraped = upstream(f"llamacpp-synth/{name}.txt")
    without_positions = re.sub(rb"(?m)^.*position=.*\n", b"", scraped)
    cleared = re.sub(rb"(?m)^(llamacpp:\w+) \S+$", rb"\1 0", without_positions)
    settings = replace(
        Settings(costs=CostSettings(KNOWN)), windows=(WINDOW,), judged=WINDOW
    )
    states, _ = process_reading({}, read(cleared), 0.0, settings)
    running = re.sub(rb"(?m)^(llamacpp:requests_processing) \S+$", rb"\1 4", scraped)
    _, (engine,) = process_reading(states, read(running), 200.0, settings)

    assert differences(engine, SETS[name], REQUESTS) == []
    fitting = [
        candidate
        for candidate, wanted in SETS.items()
        if not differences(engine, wanted, REQUESTS)
    ]
    assert fitting == [name]
