"""Cases of activity.yml: is speculation doing what it was set up to do?"""

from __future__ import annotations

from dataclasses import replace

from .case import Case
from .promtool import Check, Expected
from .sweeps import replica
from .world import MODEL, Phase, World, idle

RUNBOOKS = "https://example.com/vllm-specdec-exporter/runbooks/VLLMSpecDecode"
GRAFANA = "https://grafana.example.com/d/vllm-specdec-"
PAGE_MODEL = "?from=now-6h&var-namespace=chat&var-model_name=meta-llama%2FLlama-3.1-8B-Instruct"

# --- worlds

#: Tokens, and not a single draft.
BYPASSED = Phase(
    60,
    drafts=0,
    plain_tokens=500,
    speedup=None,
    activity="bypassed",
    action="insufficient_data",
    recommended_k=None,
)
COLLAPSED = Phase(40, acceptance=(0.04, 0.002, 0.0), speedup=1.1)


def bypassed() -> World:
    """One of two pods drafts nothing from minute 20 to 79."""
    world = World()
    replica(world, 1, Phase(20), BYPASSED, Phase(40))
    replica(world, 2, Phase(120))
    return world


def bypassed_by_schedule() -> World:
    """The schedule has K = 0 from minute 20 to 69; the server has no pod."""
    world = World()
    off = replace(BYPASSED, minutes=50, scheduled_k=0, running=80)
    world.engine(Phase(20, scheduled_k=3), off, Phase(30, scheduled_k=3))
    return world


def nearly_idle() -> World:
    """A few tokens an hour, none of them drafted."""
    world = World()
    replica(world, 1, replace(BYPASSED, minutes=90, plain_tokens=10))
    return world


def bypassed_shortly() -> World:
    """Nothing is drafted for 25 minutes."""
    world = World()
    replica(world, 1, Phase(20), replace(BYPASSED, minutes=25), Phase(40))
    return world


def bypassed_after_idleness() -> World:
    """Nothing is drafted for the first twelve minutes after an idle hour."""
    world = World()
    replica(world, 1, idle(60), replace(BYPASSED, minutes=12), Phase(30))
    return world


def bypassed_at_first() -> World:
    """Nothing is drafted for the first twelve minutes of a new engine."""
    world = World()
    replica(world, 1, replace(BYPASSED, minutes=12), Phase(30))
    return world


def data_parallel() -> World:
    """A server of two engines has a schedule until minute 29."""
    world = World()
    for engine in ("0", "1"):
        phases = (Phase(30, scheduled_k=3), Phase(40))
        pod = {"pod": "vllm-1"}
        world.engine(*phases, engine=engine, labels=pod, exporter=engine == "0")
    return world


def two_servers() -> World:
    """Two servers of one engine each have a schedule."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(30, scheduled_k=3))
    return world


def collapsed() -> World:
    """Hardly anything is accepted on two replicas from minute 60 to 99."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(60), COLLAPSED, Phase(40))
    return world


def collapsed_on_one() -> World:
    """Hardly anything is accepted on one of four replicas, and nobody knows what that costs."""
    world = World()
    for index in range(1, 5):
        replica(world, index, replace(COLLAPSED, speedup=None) if index == 1 else Phase(40))
    return world


def collapsed_without_a_name() -> World:
    """A server that names neither model nor engine accepts hardly anything."""
    world = World()
    world.engine(COLLAPSED, model="", engine="")
    return world


def collapsed_shortly() -> World:
    """Hardly anything is accepted for four minutes."""
    world = World()
    replica(world, 1, Phase(60), replace(COLLAPSED, minutes=4), Phase(40))
    return world


def collapsed_and_beneficial() -> World:
    """Hardly anything is accepted, and the baseline says that it is faster all the same."""
    world = World()
    replica(world, 1, replace(COLLAPSED, speedup=1.3, basis="measured"))
    return world


def collapsed_with_few_drafts() -> World:
    """Hardly anything is accepted, of 450 drafts in five minutes."""
    world = World()
    replica(world, 1, replace(COLLAPSED, drafts=90))
    return world


# --- what fires

NOTHING_DRAFTED = Expected(
    labels={
        "engine": "0",
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "engine",
        "model_name": MODEL,
        "namespace": "chat",
        "pod": "vllm-1",
        "severity": "warning",
        "subject": "activity",
    },
    annotations={
        "summary": "Speculation is configured, but nothing is drafted.",
        "description": (
            MODEL + ", engine 0 at vllm-1 has generated tokens for 30 minutes without a single draft, and "
            "no schedule asks for that: the draft model takes memory and gives nothing."
        ),
        "action": (
            "Run vllm-specdec-exporter check against the server: n-gram may find nothing to draft "
            "in this traffic; otherwise look into vLLM's log for why it does not draft."
        ),
        "value": "0 drafts, 15k tokens in 30m",
        "runbook_url": RUNBOOKS + "Bypassed.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

BY_SCHEDULE = Expected(
    labels={
        "engine": "0",
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "engine",
        "model_name": MODEL,
        "namespace": "chat",
        "severity": "info",
        "subject": "activity",
    },
    annotations={
        "summary": "The K schedule has switched speculation off at this load.",
        "description": (
            MODEL + ", engine 0 at 10.0.0.1:9850 drafts nothing, because its schedule has K = 0 for the "
            "number of requests that run now."
        ),
        "action": (
            "Nothing, if the schedule is meant so; the recommended schedule is on the exporter's status page."
        ),
        "runbook_url": RUNBOOKS + "DisabledBySchedule.md",
        "dashboard_url": GRAFANA + "cost" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

IGNORED = Expected(
    labels={
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "instance",
        "model_name": MODEL,
        "namespace": "chat",
        "pod": "vllm-1",
        "severity": "warning",
        "subject": "activity",
    },
    annotations={
        "summary": "vLLM ignores the K schedule, because it runs with data parallelism.",
        "description": (
            MODEL + " at vllm-1 has a schedule of K by batch size and 2 engines. vLLM ignores the schedule "
            "with data parallelism and drafts the same K at every load."
        ),
        "action": (
            "Take the schedule out and set the K that the exporter recommends, or run one engine per server."
        ),
        "value": "2 engines",
        "threshold": "1 engine",
        "runbook_url": RUNBOOKS + "ScheduleIgnored.md",
        "dashboard_url": GRAFANA + "cost?from=now-6h&var-instance=10.0.0.1%3A9850",
    },
)

COLLAPSED_MODEL = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Speculation has silently collapsed: almost nothing that is drafted is accepted.",
        "description": MODEL + " in chat answers as ever, but accepts 1.4% of its draft tokens.",
        "action": (
            "Find what changed: an upgrade of vLLM, target and draft model that no longer fit "
            "(quantization, checkpoint, chat template), very high temperatures or long contexts. "
            "Disable speculation until then."
        ),
        "value": "1.4% accepted",
        "threshold": "5%",
        "sample": "6k drafts in 5m",
        "runbook_url": RUNBOOKS + "Collapsed.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

COLLAPSED_1 = Expected(
    labels={
        "engine": "0",
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "engine",
        "model_name": MODEL,
        "namespace": "chat",
        "pod": "vllm-1",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Speculation has silently collapsed: almost nothing that is drafted is accepted.",
        "description": (
            MODEL + ", engine 0 at vllm-1 answers as ever, but accepts 1.4% of its draft tokens."
        ),
        "action": (
            "Find what changed: an upgrade of vLLM, target and draft model that no longer fit "
            "(quantization, checkpoint, chat template), very high temperatures or long contexts. "
            "Disable speculation until then."
        ),
        "value": "1.4% accepted",
        "threshold": "5%",
        "sample": "6k drafts in 5m",
        "runbook_url": RUNBOOKS + "Collapsed.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

COLLAPSED_2 = Expected(
    labels={
        "engine": "0",
        "instance": "10.0.0.2:9850",
        "job": "vllm-specdec-exporter",
        "level": "engine",
        "model_name": MODEL,
        "namespace": "chat",
        "pod": "vllm-2",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Speculation has silently collapsed: almost nothing that is drafted is accepted.",
        "description": (
            MODEL + ", engine 0 at vllm-2 answers as ever, but accepts 1.4% of its draft tokens."
        ),
        "action": (
            "Find what changed: an upgrade of vLLM, target and draft model that no longer fit "
            "(quantization, checkpoint, chat template), very high temperatures or long contexts. "
            "Disable speculation until then."
        ),
        "value": "1.4% accepted",
        "threshold": "5%",
        "sample": "6k drafts in 5m",
        "runbook_url": RUNBOOKS + "Collapsed.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.2%3A9850&var-engine=0",
    },
)

COLLAPSED_ALONE = Expected(
    labels={
        "engine": "0",
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "engine",
        "model_name": MODEL,
        "namespace": "chat",
        "pod": "vllm-1",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Speculation has silently collapsed: almost nothing that is drafted is accepted.",
        "description": (
            MODEL + ", engine 0 at vllm-1 answers as ever, but accepts 1.4% of its draft tokens."
        ),
        "action": (
            "Find what changed: an upgrade of vLLM, target and draft model that no longer fit "
            "(quantization, checkpoint, chat template), very high temperatures or long contexts. "
            "Disable speculation until then."
        ),
        "value": "1.4% accepted",
        "threshold": "5%",
        "sample": "12k drafts in 5m",
        "runbook_url": RUNBOOKS + "Collapsed.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

NAMELESS = Expected(
    labels={
        "level": "model",
        "namespace": "chat",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Speculation has silently collapsed: almost nothing that is drafted is accepted.",
        "description": (
            "a model without a name in chat answers as ever, but accepts 1.4% of its draft tokens."
        ),
        "action": (
            "Find what changed: an upgrade of vLLM, target and draft model that no longer fit "
            "(quantization, checkpoint, chat template), very high temperatures or long contexts. "
            "Disable speculation until then."
        ),
        "value": "1.4% accepted",
        "threshold": "5%",
        "sample": "3k drafts in 5m",
        "runbook_url": RUNBOOKS + "Collapsed.md",
        "dashboard_url": GRAFANA + "acceptance?from=now-6h&var-namespace=chat",
    },
)

NAMELESS_ENGINE = Expected(
    labels={
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "engine",
        "namespace": "chat",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Speculation has silently collapsed: almost nothing that is drafted is accepted.",
        "description": (
            "a model without a name, engine  at 10.0.0.1:9850 answers as ever, but accepts 1.4% of "
            "its draft tokens."
        ),
        "action": (
            "Find what changed: an upgrade of vLLM, target and draft model that no longer fit "
            "(quantization, checkpoint, chat template), very high temperatures or long contexts. "
            "Disable speculation until then."
        ),
        "value": "1.4% accepted",
        "threshold": "5%",
        "sample": "3k drafts in 5m",
        "runbook_url": RUNBOOKS + "Collapsed.md",
        "dashboard_url": (GRAFANA + "acceptance?from=now-6h&var-namespace=chat&var-instance=10.0.0.1%3A9850"),
    },
)

# --- cases

CASES: tuple[Case, ...] = (
    Case(
        "nothing-is-drafted", "Bypassed", "fires", bypassed, 60, (NOTHING_DRAFTED,), (Check(48, "Bypassed"),)
    ),
    Case(
        "drafted-again",
        "Bypassed",
        "recovers",
        bypassed,
        100,
        (),
        (
            Check(60, "Bypassed", (NOTHING_DRAFTED,)),
            Check(92, "Bypassed", (NOTHING_DRAFTED,)),
        ),
    ),
    Case("bypassed-by-schedule", "Bypassed", "silent", bypassed_by_schedule, 69, topic="other"),
    Case("a-few-tokens-undrafted", "Bypassed", "silent", nearly_idle, 89, topic="low-traffic"),
    Case("undrafted-for-25-minutes", "Bypassed", "silent", bypassed_shortly, 60, topic="too-short"),
    Case("undrafted-after-an-idle-hour", "Bypassed", "silent", bypassed_after_idleness, 71, topic="idle"),
    Case("undrafted-at-first", "Bypassed", "silent", bypassed_at_first, 11, topic="warming-up"),
    Case(
        "off-by-schedule",
        "DisabledBySchedule",
        "fires",
        bypassed_by_schedule,
        40,
        (BY_SCHEDULE,),
        (Check(28, "DisabledBySchedule"),),
    ),
    Case(
        "on-by-schedule",
        "DisabledBySchedule",
        "recovers",
        bypassed_by_schedule,
        85,
        (),
        (
            Check(40, "DisabledBySchedule", (BY_SCHEDULE,)),
            Check(77, "DisabledBySchedule", (BY_SCHEDULE,)),
        ),
    ),
    Case("bypassed-without-schedule", "DisabledBySchedule", "silent", bypassed, 60, topic="other"),
    Case("a-schedule-that-drafts", "DisabledBySchedule", "silent", two_servers, 29, topic="healthy"),
    Case(
        "schedule-with-data-parallelism",
        "ScheduleIgnored",
        "fires",
        data_parallel,
        20,
        (IGNORED,),
        (Check(8, "ScheduleIgnored"),),
    ),
    Case(
        "schedule-taken-out",
        "ScheduleIgnored",
        "recovers",
        data_parallel,
        50,
        (),
        (
            Check(20, "ScheduleIgnored", (IGNORED,)),
            Check(38, "ScheduleIgnored", (IGNORED,)),
        ),
    ),
    Case("schedule-on-every-server", "ScheduleIgnored", "silent", two_servers, 29, topic="healthy"),
    Case(
        "acceptance-collapsed",
        "Collapsed",
        "fires",
        collapsed,
        80,
        (COLLAPSED_MODEL, COLLAPSED_1, COLLAPSED_2),
        (
            Check(66, "Collapsed"),
            Check(72, "Collapsed", (COLLAPSED_MODEL,)),
        ),
    ),
    Case(
        "acceptance-collapsed-and-back",
        "Collapsed",
        "recovers",
        collapsed,
        125,
        (),
        (
            Check(80, "Collapsed", (COLLAPSED_MODEL, COLLAPSED_1, COLLAPSED_2)),
            Check(112, "Collapsed", (COLLAPSED_MODEL, COLLAPSED_1, COLLAPSED_2)),
        ),
    ),
    Case(
        "acceptance-collapsed-on-one-of-four", "Collapsed", "fires", collapsed_on_one, 30, (COLLAPSED_ALONE,)
    ),
    Case(
        "acceptance-collapsed-without-a-name",
        "Collapsed",
        "fires",
        collapsed_without_a_name,
        30,
        (
            NAMELESS,
            NAMELESS_ENGINE,
        ),
    ),
    Case(
        "acceptance-collapsed-for-4-minutes", "Collapsed", "silent", collapsed_shortly, 70, topic="too-short"
    ),
    Case(
        "acceptance-collapsed-and-beneficial",
        "Collapsed",
        "silent",
        collapsed_and_beneficial,
        39,
        topic="beneficial",
    ),
    Case(
        "acceptance-collapsed-of-few-drafts",
        "Collapsed",
        "silent",
        collapsed_with_few_drafts,
        39,
        topic="low-traffic",
    ),
)
