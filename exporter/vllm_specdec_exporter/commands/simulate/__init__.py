"""A simulated vLLM server, for demonstrations, scale tests and rare cases.

It serves /metrics like vLLM 0.32, or in another dialect, under a scripted scenario, and keeps exact totals of
what it drafted and accepted.

Example:
    >>> simulation = Simulation(SimulationConfig(), seed=1)
    >>> simulation.advance(60)
    >>> text = simulation.render("vllm")
"""

from .simulation import Simulation, SimulationConfig

__all__ = ["Simulation", "SimulationConfig"]
