"""Configurations of vLLM that are known to work badly, each with its source.

A row is here only if it can be told from what the exporter is given. Remove a row once the releases
that it holds for are out of use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from .speculative_config import ScheduleRow


class Setup(Struct, frozen=True):
    """What is known of a deployment; empty for what is not."""

    method: str = ""  # as vLLM calls it
    model: str = ""  # the served name
    version: str = ""  # of vLLM
    schedule: tuple[ScheduleRow, ...] = ()  # K by batch size, from ``--speculative-config``
    batch_sizes: tuple[float, float] | None = None  # the least and the most requests running in the window
    engines: int = 1  # ranks of data parallelism
    tree: bool = False  # whether drafts are trees


@dataclass(frozen=True, slots=True)
class KnownProblem:
    """One row of the table."""

    text: str  # what is wrong
    action: str  # what to do
    applies: Callable[[Setup], bool]  # whether a deployment has such a configuration, whatever its version
    since: tuple[int, int]  # the first release with it
    until: tuple[int, int] | tuple[()]  # the first release without it, empty if there is none
    source: str  # where it is reported
    verified: str  # how far the report was checked

    @property
    def reference(self) -> str:
        """Source, releases and verification, for people."""
        releases = f"since {self.since[0]}.{self.since[1]}"
        if self.until:
            releases += f", fixed in {self.until[0]}.{self.until[1]}"
        return f"{self.source}, {releases}; {self.verified}"


#: Models with linear attention beside full attention, by served name.
_HYBRID = re.compile(r"qwen3\.[568](?!\d*b)|qwen3[-_]next", re.IGNORECASE)


def _drafts_for_a_hybrid(setup: Setup) -> bool:
    drafted = setup.method in ("mtp", "dflash") or setup.method.endswith("_mtp")
    return drafted and bool(_HYBRID.search(setup.model))


def _crosses_a_row_without_drafts(setup: Setup) -> bool:
    if setup.batch_sizes is None:
        return False
    least, most = setup.batch_sizes
    return any(
        bool(row.num_speculative_tokens) is not bool(after.num_speculative_tokens)
        and least <= row.last < most
        for row, after in pairwise(setup.schedule)
    )


PROBLEMS = (
    KnownProblem(
        "n-gram drafts made on the GPU are hardly accepted with asynchronous scheduling",
        "Compare with the method ngram, which makes them on the CPU.",
        lambda setup: setup.method == "ngram_gpu",
        (0, 17),
        (),
        "vLLM issue 37150, open",
        "one report with both command lines, 1.2 % against 70 %; not run here",
    ),
    KnownProblem(
        "drafting for a model with linear attention lowers the hit rate of the prefix cache, down to none",
        "Compare vllm:prefix_cache_hits_total with and without --speculative-config under the same traffic.",
        _drafts_for_a_hybrid,
        (0, 19),
        (),
        "vLLM issues 38182 and 54360, open",
        "several reports with comparisons; not run here",
    ),
    KnownProblem(
        "the batch crosses the row of the K schedule at which drafting stops, where throughput can collapse",
        "Move that row away from the usual batch, or remove it and compare.",
        _crosses_a_row_without_drafts,
        (0, 24),
        (),
        "vLLM issue 49548, open",
        "one report that quotes the scheduler's source; not run here",
    ),
    KnownProblem(
        "the K schedule is ignored: vLLM drops it with data parallelism, and drafts num_speculative_tokens",
        "Set num_speculative_tokens for the usual batch, or run replicas instead of --data-parallel-size.",
        lambda setup: bool(setup.schedule) and setup.engines > 1,
        (0, 24),
        (),
        "vLLM pull request 45963, merged",
        "read in the source of 0.32.0; the first release is not confirmed",
    ),
    KnownProblem(
        "with a K schedule, vLLM's model runner V1 has piecewise CUDA graphs only: small batches are slower",
        "Compare one request at a time with and without the schedule, or set VLLM_USE_V2_MODEL_RUNNER=1.",
        lambda setup: bool(setup.schedule) and setup.engines == 1,
        (0, 24),
        (),
        "vLLM issue 49548, open",
        "read in the source of 0.32.0; one report of 14 %; not run here",
    ),
    KnownProblem(
        "drafts are trees, which vLLM never supported in full: branches are verified and counted as if they "
        "stood in a row",
        "Remove speculative_token_tree: drafts are then a chain of num_speculative_tokens.",
        lambda setup: setup.tree,
        (0, 10),
        (0, 32),
        "vLLM pull request 42121, merged",
        "it removes trees as not fully supported, and 22752, their sampler, was never merged; "
        "read in the source of 0.32.0, the first release without them is not confirmed",
    ),
)


def known_problems(setup: Setup) -> tuple[KnownProblem, ...]:
    """Return the rows that apply; those of other releases are left out if the version is known."""
    version = _version(setup.version)
    return tuple(
        problem
        for problem in PROBLEMS
        if problem.applies(setup)
        and (version is None or version >= problem.since)
        and (version is None or not problem.until or version < problem.until)
    )


@lru_cache(maxsize=16)
def _version(text: str) -> tuple[int, int] | None:
    match = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None
