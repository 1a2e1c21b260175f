"""Many blocks at once: most of their time they wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from docs.checking import check
from docs.running import BlockError, Machine
from docs.world import world

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from docs.inventory import Block

_AT_ONCE = 8


@dataclass(frozen=True)
class Outcome:
    """How a block ended.

    Attributes:
        wrong: what went wrong; empty where nothing did.
        printed: what its commands printed.
    """

    wrong: str
    printed: str = ""


def outcomes(blocks: Sequence[Block], folder: Path) -> dict[str, Outcome]:
    """Run blocks in a world of their own; return how each ended, by `file:line`."""
    sweeps = [block.where for block in blocks if "sweep" in block.text]
    with world(folder, len(sweeps)) as running:
        openai = dict(zip(sweeps, running.openai, strict=True))

        def outcome(number: int, block: Block) -> Outcome:
            own = folder / f"block-{number}"
            own.mkdir()
            machine = Machine(own, running, openai.get(block.where, ""), check)
            try:
                run = machine.python if block.language == "python" else machine.run
                return Outcome("", run(block.text))
            except BlockError as error:
                return Outcome(f"{block.where}\n{error}")

        # The longest first, so that all end together.
        order = sorted(range(len(blocks)), key=lambda n: "sweep" not in blocks[n].text)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(outcome, order, [blocks[n] for n in order]))
    return {blocks[n].where: ended for n, ended in zip(order, found, strict=True)}
