"""Cases in which every engine is there twice: two exporters read it, or a pair of
Prometheus servers scrapes all, and their series reach the rules with a label of each.

Ratios hold, so that nothing fires that would not otherwise, and one fault is one page.
Drafts are doubled, so that half of them are enough.
"""

from collections.abc import Callable

from .case import Table, cases, silent
from .histories import replica
from .world import Phase, World

#: Worlds of these lives, each an engine.
Lives = tuple[Phase, ...]
THRESHOLDS = frozenset({"vllm_specdec_threshold"})


def by_two_exporters(
    *lives: Lives, server: int = 0, without: frozenset[str] = frozenset()
) -> Callable[[], World]:
    """Return what builds engines that two exporters read, in pods of their own."""

    def build() -> World:
        world = World(without=without)
        for index, life in enumerate(lives, 1):
            for exporter in (index, 100 + index):
                replica(world, exporter, *life)
            if server:
                world.server(server, instance=f"10.0.0.{index}:8000")
        return world

    return build


def by_a_pair(
    *lives: Lives, server: int = 0, without: frozenset[str] = frozenset()
) -> Callable[[], World]:
    """Return what builds engines whose series two Prometheus servers send."""

    def build() -> World:
        world = World(without=without)
        for index, life in enumerate(lives, 1):
            for sender in ("a", "b"):
                labels = {"replica": sender}
                replica(world, index, *life, labels=labels, server=server)
        return world

    return build


SEVERE = (Phase(30), Phase(30, speedup=0.8, running=64))
DEAD = (Phase(20), Phase(20, gone=True))
FEW = (Phase(80, drafts=10, speedup=0.5),)
PAGE = {33: "", 40: "critical model", 59: "critical model"}

HARMFUL_CASES: Table = {
    "a-loss-that-two-exporters-read-pages-once": (by_two_exporters(SEVERE), PAGE),
    "a-loss-that-is-scraped-twice-pages-once": (by_a_pair(SEVERE), PAGE),
    # Alone it makes 300 drafts in half an hour, and 500 are needed.
    "half-of-the-drafts-are-enough-for-two-exporters": (
        by_two_exporters(FEW),
        {78: "warning model"},
    ),
    "half-of-the-drafts-are-enough-where-all-is-scraped-twice": (
        by_a_pair(FEW),
        {78: "warning model"},
    ),
}
RULES_BLIND_CASES: Table = {
    "two-exporters-have-their-thresholds-each": (
        by_two_exporters((Phase(40),)),
        silent(5, 39),
    ),
    "thresholds-that-are-scraped-twice-are-all-there": (
        by_a_pair((Phase(40),)),
        silent(5, 39),
    ),
    "of-two-exporters-both-lack-thresholds": (
        by_two_exporters((Phase(20),), without=THRESHOLDS),
        {18: ["warning instance @1", "warning instance @101"]},
    ),
    "what-is-scraped-twice-lacks-thresholds-once": (
        by_a_pair((Phase(20),), without=THRESHOLDS),
        {18: "warning instance @1"},
    ),
}
MONITORING_LOST_CASES: Table = {
    "both-exporters-of-an-engine-die": (
        by_two_exporters(DEAD, server=40),
        {22: "", 30: "critical reason=down"},
    ),
    "an-exporter-that-is-scraped-twice-dies": (
        by_a_pair(DEAD, server=40),
        {22: "", 30: "critical reason=down"},
    ),
}

CASES = (
    *cases("Harmful", HARMFUL_CASES),
    *cases("RulesBlind", RULES_BLIND_CASES),
    *cases("MonitoringLost", MONITORING_LOST_CASES),
)
