"""Histories of three readers who had not seen the rules: what each demanded, and what
comes of it.

Alerts are without prefix, times in minutes from the fault until the first alert of that
severity fires.
"""

from dataclasses import dataclass, replace

from replay import stories as s

#: Minutes of the longest.
MINUTES = 362


@dataclass(frozen=True)
class History:
    """A history, and what is told of it."""

    name: str  # in a few words; the namespace as well
    story: s.Story  # adds it to what Prometheus has scraped
    demand: str  # of its reader: `page`, `ticket` or `silent`
    outcome: str = "silent"  # what comes of it, in the same words
    by: str = ""  # the first alert of that severity
    minutes: int = 0  # until it fires
    since: int = 80  # minute at which the fault begins
    why: str = ""  # the reason, where it is not what was demanded
    pages: int = 1  # how often an alert that pages begins


def _page(
    name: str, story: s.Story, minutes: int, by: str = "Harmful", since: int = 80
) -> History:
    """Return a history whose page was demanded."""
    return History(
        name, story, demand="page", outcome="page", by=by, minutes=minutes, since=since
    )


def _ticket(name: str, story: s.Story, minutes: int, by: str) -> History:
    return History(
        name, story, demand="ticket", outcome="ticket", by=by, minutes=minutes
    )


def _silent(name: str, story: s.Story) -> History:
    return History(name, story, "silent")


_SOME = (
    "a page is for a namespace without any monitoring: the other replicas still judge "
    "the model"
)
_NO_COUNTERS = (
    "answers without counters are known to be such, and a ticket; what is not measured "
    "does not page"
)
_MODEL = "a page is for a model that loses; this one gains as a whole"

HISTORIES = (
    # Of the first reader.
    _page("harm-by-a-full-batch", s.batch(s.FULL), 5, since=110),
    History(
        "a-full-batch-by-an-estimate",
        s.batch(replace(s.FULL, speedup=0.86, basis="modelled")),
        demand="ticket",
        outcome="page",
        by="Harmful",
        minutes=5,
        since=110,
        why="an estimate whose whole interval is below 1 pages, as documented",
    ),
    _silent("drafts-are-off-above-a-batch", s.NIGHTS),
    _ticket("drafts-stop-in-a-small-batch", s.SMALL_BATCH, 35, "Bypassed"),
    _silent("a-rollout-with-another-k", s.rollout),
    History(
        "two-thirds-cannot-be-scraped",
        s.shrunk,
        demand="page",
        outcome="ticket",
        by="ExporterDown",
        minutes=10,
        why=_SOME,
    ),
    _ticket("one-of-six-cannot-be-scraped", s.ONE_GONE, 10, "ExporterDown"),
    _ticket("an-old-head-on-a-quantized-canary", s.CANARY, 47, "EngineOutlier"),
    _ticket("a-hot-node-of-six", s.HOT_NODE, 70, "ObjectiveBurning"),
    History(
        "one-node-of-six-accepts-little",
        s.BAD_NODE,
        demand="page",
        outcome="ticket",
        by="EngineOutlier",
        minutes=45,
        why=_MODEL,
    ),
    History(
        "a-schedule-that-was-not-loaded",
        s.NOT_LOADED,
        demand="page",
        outcome="ticket",
        by="Harmful",
        minutes=34,
        why="7 % slower is a ticket: severe_speedup, from which on it pages, is 0.9",
    ),
    # Of the second.
    History(
        "half-of-the-fleet-has-an-old-head",
        s.HALF_OLD,
        demand="page",
        outcome="ticket",
        by="AcceptanceDropped",
        minutes=12,
        why=_MODEL,
    ),
    _silent("it-may-pay-by-night-only", s.by_day(s.GUESSED)),
    History(
        "it-pays-by-night-only",
        s.by_day(s.BUSY),
        demand="ticket",
        outcome="page",
        by="Harmful",
        minutes=5,
        why=(
            "calibrated to lose 12 % pages, as documented; twenty minutes of no loss "
            "at noon end the page"
        ),
        pages=2,
    ),
    _silent("long-prompts-and-no-drafts", s.CONTEXTS),
    _silent("two-heads-of-one-model", s.two_heads),
    History(
        "an-upgrade-drops-the-counters",
        s.COUNTERS_GONE,
        demand="page",
        outcome="ticket",
        by="Bypassed",
        minutes=34,
        why=_NO_COUNTERS,
    ),
    # Of the third.
    _page("exporters-that-die-again-and-again", s.crash_loops, 8),
    _page("gaps-every-nine-minutes", s.gaps, 5, since=99),
    _page("a-relabelling-drops-the-model", s.unnamed, 91),
    _ticket("a-zone-is-cut-off", s.ZONE_GONE, 10, "ExporterDown"),
    _page("counters-have-other-names", s.RENAMED, minutes=141),
    _page(
        "a-bad-clock-and-hanging-polls",
        s.clock,
        minutes=19,
        by="MonitoringLost",
        since=124,
    ),
    History(
        "a-weekend-without-traffic",
        s.weekend,
        demand="silent",
        outcome="ticket",
        by="MonitoringLost",
        minutes=65,
        why=(
            "two hours without exporters and without vLLM: scaled to zero, or a lost "
            "target; one ticket asks"
        ),
    ),
)
#: Notifications of all of them, on a quiet machine.
HISTORIES_TOLD = 28
