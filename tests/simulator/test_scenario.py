"""Scenarios: what a file may say, and how phases follow each other."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.builders import refusal
from vllm_specdec_exporter.commands.simulate import Simulation, SimulationConfig
from vllm_specdec_exporter.commands.simulate.phases import PHASES, ScenarioError
from vllm_specdec_exporter.commands.simulate.simulation import (
    SCENARIOS,
    load_scenario,
    parse_scenario,
)
from vllm_specdec_exporter.config.options import ConfigError


def phase(**entry: Any) -> dict[str, Any]:
    return {"phases": [{"phase": "healthy", "seconds": 1, **entry}]}


MAPPING = "a scenario is a mapping with phases, a list: "
#: What is wrong with a document, and with an entry of the phase healthy.
REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yml").read_text("utf-8"))


def test_a_faulty_scenario_is_refused_with_one_clear_line() -> None:
    cases = [
        *(
            (document, message.replace("PHASES", ", ".join(PHASES)))
            for document, message in REFUSED["documents"]
        ),
        *(
            (phase(**entry), f"phase 1: phase healthy: {message}")
            for entry, message in REFUSED["entries"]
        ),
    ]
    assert [
        refusal(ScenarioError, parse_scenario, document, "mine")
        for document, _ in cases
    ] == [message for _, message in cases]


def test_a_faulty_file_is_refused_with_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for content, message in (
        (b"phases: [", "not YAML: "),
        (b"\xff\xfe\xff", "not YAML: not UTF-8"),
        (b"phases: 3", MAPPING),
    ):
        path.write_bytes(content)
        said = refusal(ConfigError, load_scenario, path)
        assert said.startswith(f'--scenario.file "{path}": {message}'), content
        assert "\n" not in said, content


def test_every_phase_has_a_scenario_and_a_place_in_the_tour() -> None:
    assert set(PHASES) | {"tour"} == set(SCENARIOS)
    assert {step.kind.name for step in SCENARIOS["tour"].phases} == set(PHASES)


def test_phases_follow_each_other_and_begin_again() -> None:
    phases = [{"phase": "idle", "seconds": 10}, {"phase": "bypass", "seconds": 5}]
    simulation = Simulation(
        SimulationConfig(scenario=parse_scenario({"phases": phases}, "mine")), seed=1
    )
    names = []
    for _ in range(4):
        simulation.advance(6)
        names.append(simulation.phase.kind.name)
    assert names == ["idle", "bypass", "idle", "idle"]


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
