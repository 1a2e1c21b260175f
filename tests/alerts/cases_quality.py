"""Cases of quality.yml: is what is drafted accepted, as it should be and as it was?"""

from __future__ import annotations

from dataclasses import replace

from .case import Case
from .promtool import Check, Expected
from .sweeps import replica
from .world import MODEL, Phase, ServerPhase, World

RUNBOOKS = "https://example.com/vllm-specdec-exporter/runbooks/VLLMSpecDecode"
GRAFANA = "https://grafana.example.com/d/vllm-specdec-"
PAGE_MODEL = "?from=now-6h&var-namespace=chat&var-model_name=meta-llama%2FLlama-3.1-8B-Instruct"

# --- worlds

HOUR = 60
#: Mean acceptance length 1.221, acceptance 7.4 %, position 0 20 %; only just worth it.
POOR = Phase(HOUR, acceptance=(0.2, 0.02, 0.001), speedup=1.1)
#: Mean acceptance length 1.9, acceptance 30 %.
DROPPED = Phase(HOUR, acceptance=(0.5, 0.3, 0.1), speedup=1.1)


def poor() -> World:
    """Everything about acceptance is poor on both replicas, until it becomes known to pay at minute 60."""
    world = World()
    for index in (1, 2):
        replica(world, index, POOR, replace(POOR, speedup=1.3))
    return world


def poor_on_one() -> World:
    """Everything about acceptance is poor on one of four replicas, and nobody knows what that costs."""
    world = World()
    for index in range(1, 5):
        replica(world, index, replace(POOR, speedup=None) if index == 1 else Phase(HOUR))
    return world


def poor_and_beneficial() -> World:
    """Everything about acceptance is poor, and yet it pays."""
    world = World()
    replica(world, 1, replace(POOR, speedup=1.3))
    return world


def poor_with_few_drafts() -> World:
    """Everything about acceptance is poor, of 450 drafts in half an hour."""
    world = World()
    replica(world, 1, replace(POOR, drafts=15))
    return world


def short_drafts() -> World:
    """Drafts are shorter than K, so that the last positions are seldom reached."""
    world = World()
    replica(world, 1, Phase(HOUR, acceptance=(0.8, 0.3, 0.02), draft_length=1.5, speedup=1.1))
    return world


def dropped() -> World:
    """Acceptance drops on both replicas at minute 120."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(2 * HOUR), DROPPED, Phase(HOUR))
    return world


def dropped_and_back() -> World:
    """Acceptance drops on both replicas for a quarter of an hour."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(2 * HOUR), replace(DROPPED, minutes=15), Phase(90))
    return world


def dropped_since_yesterday() -> World:
    """Acceptance drops at hour 25, after a day of the same load."""
    world = World()
    replica(world, 1, Phase(25 * HOUR), DROPPED)
    return world


def as_yesterday() -> World:
    """Acceptance drops at hour 25, to what it was at that time of the day before."""
    world = World()
    replica(world, 1, replace(DROPPED, minutes=7 * HOUR), Phase(18 * HOUR), DROPPED)
    return world


def every_morning() -> World:
    """Acceptance drops at 8 in the morning and rises at midnight, on the second day as on the first."""
    world = World()
    night, day = Phase(8 * HOUR), replace(DROPPED, minutes=16 * HOUR)
    replica(world, 1, night, day, night, replace(DROPPED, minutes=HOUR))
    return world


def dropped_a_little() -> World:
    """Mean acceptance length drops from 3.1 to 2.75, by 11 %."""
    world = World()
    replica(world, 1, Phase(2 * HOUR), Phase(HOUR, acceptance=(0.8, 0.55, 0.4), speedup=1.4))
    return world


def swinging() -> World:
    """Mean acceptance length swings between 3.4 and 2.2 every quarter of an hour, as it always has."""
    high, low = Phase(15, acceptance=(0.95, 0.8, 0.65)), Phase(15, acceptance=(0.7, 0.35, 0.15), speedup=1.3)
    world = World()
    replica(world, 1, *(high, low) * 8)
    return world


def repetitive() -> World:
    """Nearly everything is accepted until minute 59."""
    world = World()
    replica(world, 1, Phase(HOUR, acceptance=(1.0, 0.995, 0.99), speedup=2.5), Phase(90))
    return world


def ended_as_repetition() -> World:
    """VLLM ends one answer in six for repeating itself, until minute 39."""
    loops, none = {"stop": 50.0, "repetition": 10.0}, {"stop": 60.0, "repetition": 0.0}
    world = World()
    replica(world, 1, Phase(130), server=(ServerPhase(40, finished=loops), ServerPhase(90, finished=none)))
    return world


def seldom_ended_as_repetition() -> World:
    """VLLM ends one answer in thirty for repeating itself."""
    world = World()
    finished = {"stop": 58.0, "repetition": 2.0}
    replica(world, 1, Phase(HOUR), server=(ServerPhase(HOUR, finished=finished),))
    return world


def outlier() -> World:
    """One of two engines accepts half of what the other does, until minute 59."""
    world = World()
    replica(world, 1, Phase(HOUR, acceptance=(0.5, 0.3, 0.2), speedup=1.3), Phase(2 * HOUR))
    replica(world, 2, Phase(3 * HOUR))
    return world


def outlier_without_peers() -> World:
    """One of two engines accepts half of what the other does, which has hardly any traffic."""
    world = World()
    replica(world, 1, Phase(90, acceptance=(0.5, 0.3, 0.2), speedup=1.3))
    replica(world, 2, Phase(90, drafts=60))
    return world


def outlier_by_its_k() -> World:
    """One of two engines has K = 1."""
    world = World()
    replica(world, 1, Phase(90, acceptance=(0.9,), speedup=1.3))
    replica(world, 2, Phase(90))
    return world


#: Acceptance 61.3 %, 8.7 points lower than before.
QUANTIZED = Phase(5 * HOUR, acceptance=(0.8, 0.62, 0.42), speedup=1.5)


def step() -> World:
    """The engine restarts at minute 180, and accepts 8.7 points less from then on."""
    world = World()
    replica(world, 1, Phase(3 * HOUR), Phase(6, unreachable=True), replace(QUANTIZED, restart=True))
    return world


def step_with_new_pods() -> World:
    """New pods take the place of the old ones at minute 180, and accept 8.7 points less."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(3 * HOUR))
        replica(world, 10 + index, replace(QUANTIZED, minutes=2 * HOUR), start=3 * HOUR)
    return world


def step_of_traffic() -> World:
    """Acceptance falls by 8.7 points, and nothing was restarted."""
    world = World()
    replica(world, 1, Phase(3 * HOUR), QUANTIZED)
    return world


def half_a_step() -> World:
    """The engine restarts, and accepts 3 points less."""
    world = World()
    after = Phase(2 * HOUR, acceptance=(0.88, 0.67, 0.46), speedup=1.5, restart=True)
    replica(world, 1, Phase(3 * HOUR), Phase(6, unreachable=True), after)
    return world


# --- what fires

SHORT_MODEL = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Mean acceptance length is poor.",
        "description": (
            "The mean acceptance length of meta-llama/Llama-3.1-8B-Instruct in chat is 1.22 over 30"
            " minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "1.22",
        "threshold": "1.30",
        "sample": "36k drafts in 30m",
        "runbook_url": RUNBOOKS + "MeanAcceptanceLengthLow.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

SHORT_1 = Expected(
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
        "summary": "Mean acceptance length is poor.",
        "description": (
            "The mean acceptance length of meta-llama/Llama-3.1-8B-Instruct, engine 0 at vllm-1 is "
            "1.22 over 30 minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "1.22",
        "threshold": "1.30",
        "sample": "36k drafts in 30m",
        "runbook_url": RUNBOOKS + "MeanAcceptanceLengthLow.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

SHORT_2 = Expected(
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
        "summary": "Mean acceptance length is poor.",
        "description": (
            "The mean acceptance length of meta-llama/Llama-3.1-8B-Instruct, engine 0 at vllm-2 is "
            "1.22 over 30 minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "1.22",
        "threshold": "1.30",
        "sample": "36k drafts in 30m",
        "runbook_url": RUNBOOKS + "MeanAcceptanceLengthLow.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.2%3A9850&var-engine=0",
    },
)

SHORT_ALONE = Expected(
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
        "summary": "Mean acceptance length is poor.",
        "description": (
            "The mean acceptance length of meta-llama/Llama-3.1-8B-Instruct, engine 0 at vllm-1 is "
            "1.22 over 30 minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "1.22",
        "threshold": "1.30",
        "sample": "72k drafts in 30m",
        "runbook_url": RUNBOOKS + "MeanAcceptanceLengthLow.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

LOW_MODEL = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "The acceptance rate is poor.",
        "description": (
            "The acceptance rate of meta-llama/Llama-3.1-8B-Instruct in chat is 7.367% over 30 "
            "minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "7.367%",
        "threshold": "40%",
        "sample": "36k drafts in 30m",
        "runbook_url": RUNBOOKS + "AcceptanceLow.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

LOW_1 = Expected(
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
        "summary": "The acceptance rate is poor.",
        "description": (
            "The acceptance rate of meta-llama/Llama-3.1-8B-Instruct, engine 0 at vllm-1 is 7.367% "
            "over 30 minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "7.367%",
        "threshold": "40%",
        "sample": "36k drafts in 30m",
        "runbook_url": RUNBOOKS + "AcceptanceLow.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

LOW_2 = Expected(
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
        "summary": "The acceptance rate is poor.",
        "description": (
            "The acceptance rate of meta-llama/Llama-3.1-8B-Instruct, engine 0 at vllm-2 is 7.367% "
            "over 30 minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "7.367%",
        "threshold": "40%",
        "sample": "36k drafts in 30m",
        "runbook_url": RUNBOOKS + "AcceptanceLow.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.2%3A9850&var-engine=0",
    },
)

LOW_ALONE = Expected(
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
        "summary": "The acceptance rate is poor.",
        "description": (
            "The acceptance rate of meta-llama/Llama-3.1-8B-Instruct, engine 0 at vllm-1 is 7.367% "
            "over 30 minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "7.367%",
        "threshold": "40%",
        "sample": "72k drafts in 30m",
        "runbook_url": RUNBOOKS + "AcceptanceLow.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

FIRST_MODEL = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Even the first drafted token is often rejected.",
        "description": (
            "The acceptance rate of position 0 of meta-llama/Llama-3.1-8B-Instruct in chat is 20% "
            "over 30 minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "20%",
        "threshold": "70%",
        "sample": "36k drafts in 30m",
        "runbook_url": RUNBOOKS + "Position0Low.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

FIRST_1 = Expected(
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
        "summary": "Even the first drafted token is often rejected.",
        "description": (
            "The acceptance rate of position 0 of meta-llama/Llama-3.1-8B-Instruct, engine 0 at "
            "vllm-1 is 20% over 30 minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "20%",
        "threshold": "70%",
        "sample": "36k drafts in 30m",
        "runbook_url": RUNBOOKS + "Position0Low.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

FIRST_2 = Expected(
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
        "summary": "Even the first drafted token is often rejected.",
        "description": (
            "The acceptance rate of position 0 of meta-llama/Llama-3.1-8B-Instruct, engine 0 at "
            "vllm-2 is 20% over 30 minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "20%",
        "threshold": "70%",
        "sample": "36k drafts in 30m",
        "runbook_url": RUNBOOKS + "Position0Low.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.2%3A9850&var-engine=0",
    },
)

FIRST_ALONE = Expected(
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
        "summary": "Even the first drafted token is often rejected.",
        "description": (
            "The acceptance rate of position 0 of meta-llama/Llama-3.1-8B-Instruct, engine 0 at "
            "vllm-1 is 20% over 30 minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "20%",
        "threshold": "70%",
        "sample": "72k drafts in 30m",
        "runbook_url": RUNBOOKS + "Position0Low.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

DECLINE_MODEL = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Acceptance declines rapidly from position to position.",
        "description": (
            "The mean conditional acceptance behind position 0 of meta-llama/Llama-3.1-8B-Instruct "
            "in chat is 7.071% over 30 minutes, and speculation is not known to be beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "7.071%",
        "threshold": "50%",
        "sample": "36k drafts in 30m",
        "runbook_url": RUNBOOKS + "RapidDecline.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

DECLINE_1 = Expected(
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
        "summary": "Acceptance declines rapidly from position to position.",
        "description": (
            "The mean conditional acceptance behind position 0 of meta-llama/Llama-3.1-8B-Instruct,"
            " engine 0 at vllm-1 is 7.071% over 30 minutes, and speculation is not known to be "
            "beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "7.071%",
        "threshold": "50%",
        "sample": "36k drafts in 30m",
        "runbook_url": RUNBOOKS + "RapidDecline.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

DECLINE_2 = Expected(
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
        "summary": "Acceptance declines rapidly from position to position.",
        "description": (
            "The mean conditional acceptance behind position 0 of meta-llama/Llama-3.1-8B-Instruct,"
            " engine 0 at vllm-2 is 7.071% over 30 minutes, and speculation is not known to be "
            "beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "7.071%",
        "threshold": "50%",
        "sample": "36k drafts in 30m",
        "runbook_url": RUNBOOKS + "RapidDecline.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.2%3A9850&var-engine=0",
    },
)

DECLINE_ALONE = Expected(
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
        "summary": "Acceptance declines rapidly from position to position.",
        "description": (
            "The mean conditional acceptance behind position 0 of meta-llama/Llama-3.1-8B-Instruct,"
            " engine 0 at vllm-1 is 7.071% over 30 minutes, and speculation is not known to be "
            "beneficial."
        ),
        "action": (
            "Follow the exporter's advice on K; where even the best K loses, switch the method or "
            "disable speculation."
        ),
        "value": "7.071%",
        "threshold": "50%",
        "sample": "72k drafts in 30m",
        "runbook_url": RUNBOOKS + "RapidDecline.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

DROP = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Mean acceptance length has suddenly dropped.",
        "description": (
            "The mean acceptance length of meta-llama/Llama-3.1-8B-Instruct in chat fell to 1.90 "
            "within minutes: more than three deviations below the hour before, and below yesterday "
            "at this time."
        ),
        "action": (
            "Look for what changed within the last minutes: a release, the traffic (temperature, "
            "prompts, language), one replica. Then retune K or switch the method."
        ),
        "value": "1.90",
        "threshold": "15% below the last hour and yesterday",
        "sample": "6k drafts in 5m",
        "runbook_url": RUNBOOKS + "AcceptanceDropped.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

DROP_SINCE_YESTERDAY = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Mean acceptance length has suddenly dropped.",
        "description": (
            "The mean acceptance length of meta-llama/Llama-3.1-8B-Instruct in chat fell to 1.90 "
            "within minutes: more than three deviations below the hour before, and below yesterday "
            "at this time."
        ),
        "action": (
            "Look for what changed within the last minutes: a release, the traffic (temperature, "
            "prompts, language), one replica. Then retune K or switch the method."
        ),
        "value": "1.90",
        "threshold": "15% below the last hour and yesterday",
        "sample": "3k drafts in 5m",
        "runbook_url": RUNBOOKS + "AcceptanceDropped.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

HIGH = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "reason": "acceptance",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Acceptance is abnormally high: answers may repeat themselves.",
        "description": (
            MODEL + " in chat accepts 99.5% of its draft tokens. Text is rarely that predictable; loops are."
        ),
        "action": (
            "Read some answers. If they loop, look at sampling penalties and the chat template; it "
            "is no matter of K."
        ),
        "value": "99.5% accepted",
        "threshold": "98%",
        "sample": "18k drafts in 30m",
        "runbook_url": RUNBOOKS + "AcceptanceAbnormallyHigh.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

HIGH_AT_LAST = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "reason": "acceptance",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Acceptance is abnormally high: answers may repeat themselves.",
        "description": (
            MODEL + " in chat accepts 98.52% of its draft tokens. Text is rarely that predictable; loops are."
        ),
        "action": (
            "Read some answers. If they loop, look at sampling penalties and the chat template; it "
            "is no matter of K."
        ),
        "value": "98.52% accepted",
        "threshold": "98%",
        "sample": "18k drafts in 30m",
        "runbook_url": RUNBOOKS + "AcceptanceAbnormallyHigh.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

REPETITION = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "reason": "repetition",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "vLLM ends many answers because they repeat themselves.",
        "description": (
            "16.67% of the requests of meta-llama/Llama-3.1-8B-Instruct in chat ended as repetition"
            " in the last 30 minutes."
        ),
        "action": (
            "Read some answers, and look at sampling penalties and the chat template; it is no matter of K."
        ),
        "value": "16.67% of the requests",
        "threshold": "5%",
        "sample": "1.8k requests in 30m",
        "runbook_url": RUNBOOKS + "AcceptanceAbnormallyHigh.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

REPETITION_AT_LAST = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "reason": "repetition",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "vLLM ends many answers because they repeat themselves.",
        "description": (
            "5.556% of the requests of meta-llama/Llama-3.1-8B-Instruct in chat ended as repetition"
            " in the last 30 minutes."
        ),
        "action": (
            "Read some answers, and look at sampling penalties and the chat template; it is no matter of K."
        ),
        "value": "5.556% of the requests",
        "threshold": "5%",
        "sample": "1.8k requests in 30m",
        "runbook_url": RUNBOOKS + "AcceptanceAbnormallyHigh.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

OUTLIER = Expected(
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
        "summary": "One engine accepts far less than its peers.",
        "description": (
            MODEL + ", engine 0 at vllm-1 has 1.00 tokens accepted per draft over the last hour, far fewer "
            "than the model's other engines."
        ),
        "action": (
            "Compare its version, its draft model's checkpoint and its traffic with the others'; "
            "drain and restart it."
        ),
        "value": "1.00 accepted per draft",
        "threshold": "20% below its peers",
        "sample": "60k drafts in 1h of the model",
        "runbook_url": RUNBOOKS + "EngineOutlier.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

OUTLIER_AT_LAST = Expected(
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
        "summary": "One engine accepts far less than its peers.",
        "description": (
            MODEL + ", engine 0 at vllm-1 has 1.68 tokens accepted per draft over the last hour, far fewer "
            "than the model's other engines."
        ),
        "action": (
            "Compare its version, its draft model's checkpoint and its traffic with the others'; "
            "drain and restart it."
        ),
        "value": "1.68 accepted per draft",
        "threshold": "20% below its peers",
        "sample": "72k drafts in 1h of the model",
        "runbook_url": RUNBOOKS + "EngineOutlier.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL + "&var-instance=10.0.0.1%3A9850&var-engine=0",
    },
)

STEP = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Acceptance is a step lower since a restart, as after quantization.",
        "description": (
            "Since a restart within the last 2 hours, the acceptance rate of "
            "meta-llama/Llama-3.1-8B-Instruct in chat is 8.667% (in points) lower than before: a "
            "step, at the same K. Quantizing the target, or another checkpoint, does that."
        ),
        "action": (
            "Compare the build with the one before: quantization, checkpoint of target or drafter, "
            "vLLM's version."
        ),
        "value": "8.667% lower",
        "threshold": "5%",
        "sample": "36k drafts in 1h",
        "runbook_url": RUNBOOKS + "AcceptanceStep.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

STEP_OF_PODS = Expected(
    labels={
        "level": "model",
        "model_name": MODEL,
        "namespace": "chat",
        "severity": "warning",
        "subject": "acceptance",
    },
    annotations={
        "summary": "Acceptance is a step lower since a restart, as after quantization.",
        "description": (
            "Since a restart within the last 2 hours, the acceptance rate of "
            "meta-llama/Llama-3.1-8B-Instruct in chat is 8.667% (in points) lower than before: a "
            "step, at the same K. Quantizing the target, or another checkpoint, does that."
        ),
        "action": (
            "Compare the build with the one before: quantization, checkpoint of target or drafter, "
            "vLLM's version."
        ),
        "value": "8.667% lower",
        "threshold": "5%",
        "sample": "72k drafts in 1h",
        "runbook_url": RUNBOOKS + "AcceptanceStep.md",
        "dashboard_url": GRAFANA + "acceptance" + PAGE_MODEL,
    },
)

# --- cases

CASES: tuple[Case, ...] = (
    Case(
        "length-poor",
        "MeanAcceptanceLengthLow",
        "fires",
        poor,
        45,
        (SHORT_MODEL, SHORT_1, SHORT_2),
        (Check(12, "MeanAcceptanceLengthLow"),),
    ),
    Case("length-poor-on-one-of-four", "MeanAcceptanceLengthLow", "fires", poor_on_one, 50, (SHORT_ALONE,)),
    Case(
        "length-poor-until-it-pays",
        "MeanAcceptanceLengthLow",
        "recovers",
        poor,
        96,
        (),
        (
            Check(45, "MeanAcceptanceLengthLow", (SHORT_MODEL, SHORT_1, SHORT_2)),
            Check(82, "MeanAcceptanceLengthLow", (SHORT_MODEL, SHORT_1, SHORT_2)),
        ),
    ),
    Case(
        "length-poor-and-beneficial",
        "MeanAcceptanceLengthLow",
        "silent",
        poor_and_beneficial,
        59,
        topic="beneficial",
    ),
    Case(
        "length-poor-of-few-drafts",
        "MeanAcceptanceLengthLow",
        "silent",
        poor_with_few_drafts,
        59,
        topic="low-traffic",
    ),
    Case(
        "acceptance-poor",
        "AcceptanceLow",
        "fires",
        poor,
        45,
        (LOW_MODEL, LOW_1, LOW_2),
        (Check(12, "AcceptanceLow"),),
    ),
    Case("acceptance-poor-on-one-of-four", "AcceptanceLow", "fires", poor_on_one, 50, (LOW_ALONE,)),
    Case(
        "acceptance-poor-until-it-pays",
        "AcceptanceLow",
        "recovers",
        poor,
        96,
        (),
        (
            Check(45, "AcceptanceLow", (LOW_MODEL, LOW_1, LOW_2)),
            Check(82, "AcceptanceLow", (LOW_MODEL, LOW_1, LOW_2)),
        ),
    ),
    Case(
        "acceptance-poor-and-beneficial",
        "AcceptanceLow",
        "silent",
        poor_and_beneficial,
        59,
        topic="beneficial",
    ),
    Case(
        "acceptance-poor-of-few-drafts",
        "AcceptanceLow",
        "silent",
        poor_with_few_drafts,
        59,
        topic="low-traffic",
    ),
    Case(
        "position-0-poor",
        "Position0Low",
        "fires",
        poor,
        45,
        (FIRST_MODEL, FIRST_1, FIRST_2),
        (Check(12, "Position0Low"),),
    ),
    Case("position-0-poor-on-one-of-four", "Position0Low", "fires", poor_on_one, 50, (FIRST_ALONE,)),
    Case(
        "position-0-poor-until-it-pays",
        "Position0Low",
        "recovers",
        poor,
        96,
        (),
        (
            Check(45, "Position0Low", (FIRST_MODEL, FIRST_1, FIRST_2)),
            Check(82, "Position0Low", (FIRST_MODEL, FIRST_1, FIRST_2)),
        ),
    ),
    Case(
        "position-0-poor-and-beneficial",
        "Position0Low",
        "silent",
        poor_and_beneficial,
        59,
        topic="beneficial",
    ),
    Case(
        "position-0-poor-of-few-drafts",
        "Position0Low",
        "silent",
        poor_with_few_drafts,
        59,
        topic="low-traffic",
    ),
    Case(
        "decline-poor",
        "RapidDecline",
        "fires",
        poor,
        45,
        (DECLINE_MODEL, DECLINE_1, DECLINE_2),
        (Check(12, "RapidDecline"),),
    ),
    Case("decline-poor-on-one-of-four", "RapidDecline", "fires", poor_on_one, 50, (DECLINE_ALONE,)),
    Case(
        "decline-poor-until-it-pays",
        "RapidDecline",
        "recovers",
        poor,
        96,
        (),
        (
            Check(45, "RapidDecline", (DECLINE_MODEL, DECLINE_1, DECLINE_2)),
            Check(82, "RapidDecline", (DECLINE_MODEL, DECLINE_1, DECLINE_2)),
        ),
    ),
    Case(
        "decline-poor-and-beneficial", "RapidDecline", "silent", poor_and_beneficial, 59, topic="beneficial"
    ),
    Case(
        "decline-poor-of-few-drafts", "RapidDecline", "silent", poor_with_few_drafts, 59, topic="low-traffic"
    ),
    Case("decline-of-short-drafts", "RapidDecline", "silent", short_drafts, 59, topic="other"),
    Case("dropped", "AcceptanceDropped", "fires", dropped, 132, (DROP,), (Check(124, "AcceptanceDropped"),)),
    Case(
        "dropped-and-kept",
        "AcceptanceDropped",
        "holds",
        dropped,
        175,
        (DROP,),
        (Check(132, "AcceptanceDropped", (DROP,)),),
    ),
    Case(
        "dropped-below-yesterday",
        "AcceptanceDropped",
        "fires",
        dropped_since_yesterday,
        25 * HOUR + 12,
        (DROP_SINCE_YESTERDAY,),
    ),
    Case(
        "dropped-and-back",
        "AcceptanceDropped",
        "recovers",
        dropped_and_back,
        210,
        (),
        (Check(132, "AcceptanceDropped", (DROP,)),),
    ),
    Case("dropped-as-yesterday", "AcceptanceDropped", "silent", as_yesterday, 25 * HOUR + 12, topic="other"),
    Case(
        "dropped-as-every-morning",
        "AcceptanceDropped",
        "silent",
        every_morning,
        32 * HOUR + 12,
        topic="other",
    ),
    Case("dropped-a-little", "AcceptanceDropped", "silent", dropped_a_little, 132, topic="other"),
    Case(
        "swings-as-ever",
        "AcceptanceDropped",
        "silent",
        swinging,
        235,
        (),
        (*(Check(minute, "AcceptanceDropped") for minute in range(200, 235, 5)),),
        topic="other",
    ),
    Case(
        "nearly-all-accepted",
        "AcceptanceAbnormallyHigh",
        "fires",
        repetitive,
        50,
        (HIGH,),
        (Check(8, "AcceptanceAbnormallyHigh"),),
    ),
    Case(
        "nearly-all-accepted-no-more",
        "AcceptanceAbnormallyHigh",
        "recovers",
        repetitive,
        100,
        (),
        (
            Check(50, "AcceptanceAbnormallyHigh", (HIGH,)),
            Check(80, "AcceptanceAbnormallyHigh", (HIGH_AT_LAST,)),
        ),
    ),
    Case(
        "answers-repeat-themselves",
        "AcceptanceAbnormallyHigh",
        "fires",
        ended_as_repetition,
        35,
        (REPETITION,),
    ),
    Case(
        "answers-repeat-themselves-no-more",
        "AcceptanceAbnormallyHigh",
        "recovers",
        ended_as_repetition,
        110,
        (),
        (
            Check(35, "AcceptanceAbnormallyHigh", (REPETITION,)),
            Check(80, "AcceptanceAbnormallyHigh", (REPETITION_AT_LAST,)),
        ),
    ),
    Case(
        "few-answers-repeat-themselves",
        "AcceptanceAbnormallyHigh",
        "silent",
        seldom_ended_as_repetition,
        59,
        topic="healthy",
    ),
    Case("an-outlier", "EngineOutlier", "fires", outlier, 50, (OUTLIER,), (Check(28, "EngineOutlier"),)),
    Case(
        "no-outlier-any-more",
        "EngineOutlier",
        "recovers",
        outlier,
        170,
        (),
        (
            Check(50, "EngineOutlier", (OUTLIER,)),
            Check(130, "EngineOutlier", (OUTLIER_AT_LAST,)),
        ),
    ),
    Case("peers-with-few-drafts", "EngineOutlier", "silent", outlier_without_peers, 80, topic="low-traffic"),
    Case("an-outlier-by-its-k", "EngineOutlier", "silent", outlier_by_its_k, 80, topic="other"),
    Case(
        "a-step-after-a-restart",
        "AcceptanceStep",
        "fires",
        step,
        260,
        (STEP,),
        (Check(225, "AcceptanceStep"),),
    ),
    Case("a-step-with-new-pods", "AcceptanceStep", "fires", step_with_new_pods, 260, (STEP_OF_PODS,)),
    Case(
        "a-step-long-ago",
        "AcceptanceStep",
        "recovers",
        step,
        440,
        (),
        (
            Check(260, "AcceptanceStep", (STEP,)),
            Check(400, "AcceptanceStep", (STEP,)),
        ),
    ),
    Case("a-fall-without-restart", "AcceptanceStep", "silent", step_of_traffic, 260, topic="other"),
    Case("half-a-step-after-a-restart", "AcceptanceStep", "silent", half_a_step, 280, topic="restart"),
)
