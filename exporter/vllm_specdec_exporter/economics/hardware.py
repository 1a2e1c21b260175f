"""Accelerators: memory bandwidth and throughput, from the makers' data sheets (hardware.yaml)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One GPU, as its data sheet has it.

    Attributes:
        name: as `--cost.hardware` has it.
        bandwidth: of its memory, in bytes per second.
        throughput: dense operations per second, by precision.
        link: bytes per second to another GPU of the same server.
        memory: in bytes.
        source: the data sheet.
    """

    name: str
    bandwidth: float
    throughput: Mapping[str, float] = field(hash=False)
    link: float
    memory: float
    source: str

    def operations_per_second(self, precision: str) -> float:
        """Return the dense throughput of multiplications in `precision`, or in the next wider one it has."""
        order = ("fp4", "fp8", "fp16") if precision.startswith("fp") else ("int8", "fp16")
        usable = order[order.index(precision) :] if precision in order else ("fp16",)
        return next(self.throughput[name] for name in usable if name in self.throughput)


@lru_cache(maxsize=1)
def accelerators() -> Mapping[str, Accelerator]:
    """Return the accelerators that are known, by name."""
    text = Path(__file__).with_name("hardware.yaml").read_text("utf-8")
    found = {}
    for name, entry in yaml.safe_load(text)["accelerators"].items():
        found[name] = Accelerator(
            name=name,
            bandwidth=entry["bandwidth"] * 1e9,
            throughput={
                key: value * 1e12 for key, value in entry.items() if key in ("fp16", "fp8", "int8", "fp4")
            },
            link=entry["link"] * 1e9,
            memory=entry["memory"] * 1e9,
            source=entry["source"],
        )
    return found
