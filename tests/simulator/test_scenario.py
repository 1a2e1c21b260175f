"""Scenarios: what a file may say, and how phases follow each other."""

from pathlib import Path
from typing import Any

import pytest

from support.builders import refusal
from vllm_specdec_exporter.commands.simulate import Simulation, SimulationConfig
from vllm_specdec_exporter.commands.simulate.phases import PHASES, ScenarioError
from vllm_specdec_exporter.commands.simulate.simulation import (
    SCENARIOS,
    load_scenario,
    parse_scenario,
)

PHASE_NAMES = ", ".join(PHASES)


def phase(**entry: Any) -> dict[str, Any]:
    return {"phases": [{"phase": "healthy", "seconds": 1, **entry}]}


NO_PHASES = "phases must be a list of at least one phase"
#: What is wrong with a document, and with an entry of the phase healthy.
DOCUMENTS = [
    ("healthy", "a scenario is a mapping with name, loop, phases"),
    ({"phase": []}, "unknown key 'phase'; a scenario has name, loop, phases"),
    ({"phases": []}, NO_PHASES),
    ({"name": 3, "phases": []}, "name must be a text, not 3"),
    ({"loop": "no", "phases": []}, "loop must be true or false, not 'no'"),
    ({"phases": ["healthy"]}, "phase 1 must be a mapping with phase, seconds and parameters, not 'healthy'"),
    ({"phases": [{"phase": "healthy"}]}, "phase 1 (healthy) lacks seconds"),
    (phase(phase="sick"), f"phase 1: unknown phase 'sick'; the phases are {PHASE_NAMES}"),
    *(
        (phase(seconds=bad), f"phase 1: seconds must be a number above 0, not {bad!r}")
        for bad in (0, True, float("nan"))
    ),
    (
        phase(phase="restart", unavailable="500"),
        "phase 1: phase restart: unavailable must be one of refused, 503, not '500'",
    ),
    (
        phase(downtime_seconds=3),
        "phase 1: phase healthy has no parameter 'downtime_seconds'; it has "
        + ", ".join(sorted(PHASES["healthy"].parameters)),
    ),
]
WHOLE = "clients must be a whole number from 0 to 10000"
ENTRIES = [
    ({"acceptance": 1.2}, "acceptance must be a number from 0 to 1, not 1.2"),
    ({"acceptance": [0.5, "x"]}, "each value of acceptance must be a number from 0 to 1, not 'x'"),
    ({"acceptance": []}, "acceptance must not be an empty list"),
    *(({"clients": bad}, f"{WHOLE}, not {bad}") for bad in (1.5, 10**9)),
    ({"prompt_tokens": 0}, "prompt_tokens must be a number of at least 1, not 0"),
    ({"think_seconds": float("inf")}, "think_seconds must be a number of at least 0, not inf"),
    ({"draft_length_weights": 3}, "draft_length_weights must be a list of numbers, not 3"),
    ({"draft_length_weights": [0, 0]}, "draft_length_weights must have at least one value above 0"),
]


def test_a_faulty_scenario_is_refused_with_one_clear_line() -> None:
    cases = [
        *DOCUMENTS,
        *((phase(**entry), f"phase 1: phase healthy: {message}") for entry, message in ENTRIES),
    ]
    assert [refusal(ScenarioError, parse_scenario, document, "mine") for document, _ in cases] == [
        message for _, message in cases
    ]


def test_a_scenario_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        """
        loop: false
        phases:
          - {phase: healthy, seconds: 30, clients: 8}
          - phase: restart
            seconds: 20
            unavailable: "503"
          - {phase: collapse, seconds: 60, acceptance: [0.2, 0.1]}
        """,
        encoding="utf-8",
    )
    scenario = load_scenario(path)
    assert scenario.name == "mine"
    assert not scenario.loop
    assert [step.kind.name for step in scenario.phases] == ["healthy", "restart", "collapse"]
    assert scenario.phases[0].parameters["clients"] == 8
    assert scenario.phases[2].parameters["acceptance"] == (0.2, 0.1)


def test_a_faulty_file_is_refused_with_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for content, message in (
        (b"phases: [", "mine.yaml: not valid YAML: "),
        (b"\xff\xfe\xff", "mine.yaml: not valid YAML: "),
        (b"phases: 3", f"mine.yaml: {NO_PHASES}"),
        (b"#" * 1_000_001, "mine.yaml: larger than 1000000 bytes"),
    ):
        path.write_bytes(content)
        said = refusal(ScenarioError, load_scenario, path)
        assert message in said
        assert "\n" not in said


def test_every_phase_has_a_scenario_and_a_place_in_the_tour() -> None:
    assert set(PHASES) | {"tour"} == set(SCENARIOS)
    assert {step.kind.name for step in SCENARIOS["tour"].phases} == set(PHASES)


def run(override: bool | None, **entries: Any) -> list[str]:
    document = {
        "phases": [{"phase": "idle", "seconds": 10}, {"phase": "bypass", "seconds": 5}],
        **entries,
    }
    config = SimulationConfig(scenario=parse_scenario(document, "mine"), loop=override)
    simulation = Simulation(config, seed=1)
    names = []
    for _ in range(4):
        names.append(simulation.phase.kind.name)
        simulation.advance(7.5)
    return names


def test_phases_follow_each_other() -> None:
    assert run(None) == ["idle", "idle", "idle", "idle"]
    assert run(None, loop=False) == ["idle", "idle", "bypass", "bypass"]
    assert run(False) == ["idle", "idle", "bypass", "bypass"]
    assert run(True, loop=False) == ["idle", "idle", "idle", "idle"]


def test_a_phase_set_by_hand_interrupts_the_scenario() -> None:
    config = SimulationConfig(scenario=SCENARIOS["collapse"])
    simulation = Simulation(config, seed=1)
    simulation.advance(100)
    simulation.set_phase("bypass", seconds=30)
    simulation.advance(29)
    assert simulation.phase.kind.name == "bypass"
    assert simulation.phase_elapsed == pytest.approx(29)
    simulation.advance(2)
    assert simulation.phase.kind.name == "healthy"
    assert simulation.phase_elapsed == pytest.approx(1)
    simulation.set_phase("idle")
    simulation.advance(100_000)
    assert simulation.phase.kind.name == "idle"
