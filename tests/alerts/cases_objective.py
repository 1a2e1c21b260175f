"""Cases of objective.yml: is speculation worth it often enough?

An engine that loses and one that gains share the drafts, so the share of losing drafts is always the same.
Nearly all of them are made from minute 50 to 59, so that their number stands still afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .case import Case
from .promtool import Check, Expected
from .world import MODEL, Phase, World

if TYPE_CHECKING:
    from collections.abc import Callable

RUNBOOK = "https://example.com/vllm-specdec-exporter/runbooks/VLLMSpecDecodeObjectiveBurning.md"
DASHBOARD = (
    "https://grafana.example.com/d/vllm-specdec-payoff?from=now-6h&var-namespace=chat"
    "&var-model_name=meta-llama%2FLlama-3.1-8B-Instruct"
)
NAME = "ObjectiveBurning"
OBJECTIVE = {
    "severity": "warning",
    "subject": "objective",
    "level": "model",
    "model_name": MODEL,
    "namespace": "chat",
}
SUMMARY = "Speculation is worth it too seldom: its error budget burns too fast."
ACTION = (
    "Find the hours at which speculation loses, and set a K schedule that drafts less then, or disable it."
)


def _sharing(share: float, *, drafts: float = 10_000, losing: int = 210) -> Callable[[], World]:
    """Return what builds two engines, one of which loses with its share of the drafts until it gains, too.

    Args:
        share: of the drafts that the losing engine makes.
        drafts: from minute 50 to 59, of both.
        losing: for how many minutes from then on it loses.
    """

    def build() -> World:
        world = World()
        for index, (part, speedup) in enumerate(((share, 0.8), (1 - share, 1.6)), 1):
            quiet = Phase(50, drafts=0.001 * part, speedup=speedup)
            world.engine(
                quiet,
                replace(quiet, minutes=10, drafts=drafts / 10 * part),
                replace(quiet, minutes=losing),
                replace(quiet, minutes=450 - losing, speedup=1.6),
                instance=f"10.0.0.{index}:9850",
            )
        return world

    return build


def short_loss() -> World:
    """All drafts lose for five minutes, and never again."""
    world = World()
    world.engine(Phase(60), Phase(5, speedup=0.5), Phase(205))
    return world


HOUR = Expected(
    {**OBJECTIVE, "long_window": "1h", "short_window": "5m"},
    {
        "summary": SUMMARY,
        "description": f"80% of the drafts of {MODEL} in chat over the last 1h were made while speculation "
        "lost. At this pace the error budget of 30 days lasts 2 days at most.",
        "action": ACTION,
        "value": "80% of the drafts",
        "threshold": "14.4 times what the objective of 95% allows",
        "sample": "10k drafts in 1h",
        "context": "-1500% of the error budget are left",
        "runbook_url": RUNBOOK,
        "dashboard_url": DASHBOARD,
    },
)
SIX_HOURS = Expected(
    {**OBJECTIVE, "long_window": "6h", "short_window": "30m"},
    {
        "summary": SUMMARY,
        "description": f"80% of the drafts of {MODEL} in chat over the last 6h were made while speculation "
        "lost. At this pace the error budget of 30 days lasts 5 days at most.",
        "action": ACTION,
        "value": "80% of the drafts",
        "threshold": "6 times what the objective of 95% allows",
        "sample": "10k drafts in 6h",
        "context": "-1500% of the error budget are left",
        "runbook_url": RUNBOOK,
        "dashboard_url": DASHBOARD,
    },
)
DAY = Expected(
    {**OBJECTIVE, "long_window": "1d", "short_window": "2h"},
    {
        "summary": SUMMARY,
        "description": f"80% of the drafts of {MODEL} in chat over the last 1d were made while speculation "
        "lost. At this pace the error budget of 30 days lasts 10 days at most.",
        "action": ACTION,
        "value": "80% of the drafts",
        "threshold": "3 times what the objective of 95% allows",
        "sample": "10k drafts in 1d",
        "context": "-1500% of the error budget are left",
        "runbook_url": RUNBOOK,
        "dashboard_url": DASHBOARD,
    },
)
THREE_DAYS = Expected(
    {**OBJECTIVE, "long_window": "3d", "short_window": "6h"},
    {
        "summary": SUMMARY,
        "description": f"80% of the drafts of {MODEL} in chat over the last 3d were made while speculation "
        "lost. At this pace the error budget of 30 days lasts 30 days at most.",
        "action": ACTION,
        "value": "80% of the drafts",
        "threshold": "1 times what the objective of 95% allows",
        "sample": "10k drafts in 1d",
        "context": "-1500% of the error budget are left",
        "runbook_url": RUNBOOK,
        "dashboard_url": DASHBOARD,
    },
)
SIX_HOURS_AT_40 = Expected(
    SIX_HOURS.labels,
    {
        **SIX_HOURS.annotations,
        "description": f"40% of the drafts of {MODEL} in chat over the last 6h were made while speculation "
        "lost. At this pace the error budget of 30 days lasts 5 days at most.",
        "value": "40% of the drafts",
        "context": "-700% of the error budget are left",
    },
)
DAY_AT_20 = Expected(
    DAY.labels,
    {
        **DAY.annotations,
        "description": f"20% of the drafts of {MODEL} in chat over the last 1d were made while speculation "
        "lost. At this pace the error budget of 30 days lasts 10 days at most.",
        "value": "20% of the drafts",
        "context": "-300% of the error budget are left",
    },
)
THREE_DAYS_AT_20 = Expected(
    THREE_DAYS.labels,
    {
        **THREE_DAYS.annotations,
        "description": f"20% of the drafts of {MODEL} in chat over the last 3d were made while speculation "
        "lost. At this pace the error budget of 30 days lasts 30 days at most.",
        "value": "20% of the drafts",
        "context": "-300% of the error budget are left",
    },
)
THREE_DAYS_AT_10 = Expected(
    THREE_DAYS.labels,
    {
        **THREE_DAYS.annotations,
        "description": f"10% of the drafts of {MODEL} in chat over the last 3d were made while speculation "
        "lost. At this pace the error budget of 30 days lasts 30 days at most.",
        "value": "10% of the drafts",
        "context": "-100% of the error budget are left",
    },
)

CASES: tuple[Case, ...] = (
    Case(
        "sixteen-times-too-fast-for-an-hour",
        NAME,
        "fires",
        _sharing(0.8),
        100,
        (HOUR, SIX_HOURS),
        earlier=(Check(48, NAME),),
    ),
    Case(
        "sixteen-times-too-fast-for-hours",
        NAME,
        "fires",
        _sharing(0.8),
        265,
        (SIX_HOURS, DAY, THREE_DAYS),
    ),
    Case(
        "eight-times-too-fast",
        NAME,
        "fires",
        _sharing(0.4),
        100,
        (SIX_HOURS_AT_40,),
    ),
    Case(
        "four-times-too-fast",
        NAME,
        "fires",
        _sharing(0.2),
        265,
        (DAY_AT_20, THREE_DAYS_AT_20),
        earlier=(Check(100, NAME),),
    ),
    Case(
        "twice-too-fast",
        NAME,
        "fires",
        _sharing(0.1),
        265,
        (THREE_DAYS_AT_10,),
        earlier=(Check(200, NAME),),
    ),
    Case(
        "burning-ends-with-the-short-window",
        NAME,
        "recovers",
        _sharing(0.8, losing=45),
        490,
        earlier=(
            Check(66, NAME, (HOUR,)),
            Check(100, NAME, (HOUR, SIX_HOURS)),
            Check(113, NAME, (HOUR, SIX_HOURS)),
            Check(133, NAME, (SIX_HOURS, DAY)),
            Check(150, NAME, (DAY,)),
            Check(212, NAME, (DAY,)),
            Check(228, NAME),
            Check(300, NAME, (THREE_DAYS,)),
            Check(452, NAME, (THREE_DAYS,)),
        ),
    ),
    Case(
        "burning-is-told-for-a-while-after-the-loss",
        NAME,
        "holds",
        _sharing(0.8, losing=45),
        113,
        (HOUR, SIX_HOURS),
        earlier=(Check(100, NAME, (HOUR, SIX_HOURS)),),
    ),
    Case(
        "one-draft-of-twentyfive-loses",
        NAME,
        "silent",
        _sharing(0.04),
        265,
        earlier=(Check(100, NAME),),
        topic="healthy",
    ),
    Case(
        "an-engine-with-one-draft-of-fifty-loses",
        NAME,
        "silent",
        _sharing(0.02),
        265,
        topic="one-of-many",
    ),
    Case(
        "too-few-drafts-for-an-objective",
        NAME,
        "silent",
        _sharing(0.8, drafts=4900),
        265,
        earlier=(Check(100, NAME),),
        topic="low-traffic",
    ),
    Case(
        "five-minutes-of-loss-are-within-the-budget",
        NAME,
        "silent",
        short_loss,
        265,
        earlier=(Check(70, NAME), Check(130, NAME)),
        topic="too-short",
    ),
)
