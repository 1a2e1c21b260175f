"""Configurations of vLLM that are known to work badly (`known_problems.toml`), and when
its tables apply.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct, convert

from ..config.tables import read_table
from .speculative_config import ScheduleRow, Speculation


class DeploymentFacts(Struct, frozen=True):
    """What is known of a deployment; empty for what is not."""

    method: str = ""  # as vLLM calls it
    model: str = ""  # the served name
    version: str = ""  # of vLLM
    #: K by batch size, from ``--speculative-config``.
    schedule: tuple[ScheduleRow, ...] = ()
    #: The least and the most requests running in the window.
    batch_sizes: tuple[float, float] | None = None
    engines: int = 1  # ranks of data parallelism
    tree: bool = False  # whether drafts are trees
    document: str = ""  # the JSON of ``--speculative-config``
    running: bool = False  # whether it serves, so that its counters tell
    #: Share of the prompt tokens found in the prefix cache, 0 to 1; ``None`` where it
    #: is not known, or none was looked up.
    prefix_cache_hit_ratio: float | None = None
    #: Whether requests run above temperature 0; ``None`` where it is not known.
    sampled: bool | None = None
    #: Whether acceptance was measured for these requests.
    validated: bool = False


class KnownProblem(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file, which describes the fields."""

    name: str
    text: str
    action: str
    since: tuple[int, int]
    source: str
    verified: str
    until: tuple[int, ...] = ()

    def is_in(self, release: tuple[int, int] | None) -> bool:
        """Return whether a release has the problem; each may if it is not known."""
        if release is None:
            return True
        return self.since <= release and (not self.until or release < self.until)

    @property
    def reference(self) -> str:
        """Source, releases and verification, for people."""
        releases = f"since {self.since[0]}.{self.since[1]}"
        if self.until:
            releases += f", fixed in {self.until[0]}.{self.until[1]}"
        return f"{self.source}, {releases}; {self.verified}"


#: Hit ratio of a prefix cache that finds hardly anything.
_HARDLY_ANY = 0.01

#: Models with linear attention beside full attention, by served name.
_HYBRID = re.compile(r"qwen3\.[568](?!\d*b)|qwen3[-_]next", re.IGNORECASE)


def _drafts_for_a_hybrid(facts: DeploymentFacts) -> bool:
    drafted = facts.method in ("mtp", "dflash") or facts.method.endswith("_mtp")
    if not facts.running:
        return drafted and bool(_HYBRID.search(facts.model))
    # A served name may be any; what counts is whether hits are lost.
    hit_ratio = facts.prefix_cache_hit_ratio
    return drafted and hit_ratio is not None and hit_ratio < _HARDLY_ANY


def _crosses_a_row_without_drafts(facts: DeploymentFacts) -> bool:
    if facts.batch_sizes is None:
        return False
    smallest, largest = facts.batch_sizes
    for row, following in pairwise(facts.schedule):
        drafts_in_one = bool(row.num_speculative_tokens) is not bool(
            following.num_speculative_tokens
        )
        if drafts_in_one and smallest <= row.last < largest:
            return True
    return False


def _drafts_greedily(facts: DeploymentFacts) -> bool:
    if not facts.method or facts.validated or facts.sampled is False:
        return False
    return Speculation(document=facts.document).proposes_likeliest(facts.method)


#: By problem: whether a deployment has such a configuration, whatever its version.
_APPLIES: Mapping[str, Callable[[DeploymentFacts], bool]] = {
    "drafts_on_the_gpu": lambda facts: facts.method == "ngram_gpu",
    "drafts_for_a_hybrid": _drafts_for_a_hybrid,
    "crosses_a_row_without_drafts": _crosses_a_row_without_drafts,
    "ignores_the_schedule": lambda facts: bool(facts.schedule) and facts.engines > 1,
    "has_piecewise_graphs": lambda facts: bool(facts.schedule) and facts.engines == 1,
    "drafts_trees": lambda facts: facts.tree,
    "drafts_greedily": _drafts_greedily,
    "prescribes_acceptance": lambda facts: (
        '"rejection_sample_method": "synthetic"' in facts.document
    ),
}
PROBLEMS = tuple(
    convert({"name": name, **row}, KnownProblem)
    for name, row in read_table(__file__, "known_problems.toml").items()
)


def known_problems(facts: DeploymentFacts) -> tuple[KnownProblem, ...]:
    """Return the rows that apply; those of other releases are left out if the version
    is known.
    """
    release = release_of(facts.version)
    return tuple(
        problem
        for problem in PROBLEMS
        if problem.is_in(release) and _APPLIES[problem.name](facts)
    )


@lru_cache(maxsize=16)
def release_of(version: str) -> tuple[int, int] | None:
    """Return the release of a server's version, (0, 32) of ``v0.32.1+cpu``; ``None``
    for any other text.
    """
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if match:
        return (int(match[1]), int(match[2]))
    return None
