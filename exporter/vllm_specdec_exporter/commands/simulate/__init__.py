"""A simulated vLLM server: the /metrics of a server that does not exist.

It behaves like vLLM 0.32 (and, on request, like its relatives) under a scripted scenario, and
knows the exact truth behind what it publishes. It serves demonstrations, tests at scale and
cases that are rare in reality.
"""

from .command import add_arguments, run
from .families import DIALECTS
from .phases import PHASES, ScenarioError
from .scenario import SCENARIOS, Scenario, find_scenario, load_scenario, make_phase, parse_scenario
from .server import SimulatorServer
from .simulation import ServerDownError, Simulation, SimulationConfig, Truth
from .speculation import Conditions, EngineConfig, Load, StepCost

__all__ = [
    "DIALECTS",
    "PHASES",
    "SCENARIOS",
    "Conditions",
    "EngineConfig",
    "Load",
    "Scenario",
    "ScenarioError",
    "ServerDownError",
    "Simulation",
    "SimulationConfig",
    "SimulatorServer",
    "StepCost",
    "Truth",
    "add_arguments",
    "find_scenario",
    "load_scenario",
    "make_phase",
    "parse_scenario",
    "run",
]
