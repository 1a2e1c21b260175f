"""Panels of monitoring itself: are all servers polled, and can boards be trusted?"""

from mixin import CLUSTER

from .field import A_MINUTE, COUNT, word_mapping
from .palette import BLUE, GREY, ORANGE, SKY
from .panel import Panel, StateTimeline, lines, over_time
from .promql import (
    CLUSTER_LEGEND,
    EXPORTERS,
    INTERVAL,
    KNOWN,
    PLACE,
    metric,
    total,
)
from .table import Column, joined_table
from .variables import MODELS, PLACES, TARGETS
from .verdict import VERDICTS

#: The exporters that answer Prometheus.
ANSWERING = f"on ({PLACE}) up{{{TARGETS}}} == 1"
WHICH = f"{CLUSTER}, namespace, pod, instance, target"
LEGEND = (
    f"{CLUSTER_LEGEND} {{{{namespace}}}} {{{{pod}}}} {{{{instance}}}} {{{{target}}}}"
)


def series(name: str) -> str:
    """Return a series of the exporters or of the servers that they poll."""
    return metric(name, TARGETS)


#: How long Prometheus takes to scrape the exporters that answer, and nothing else: a
#: refused connection is fast.
SCRAPE = f"scrape_duration_seconds{{{TARGETS}}} and {KNOWN} and {ANSWERING}"


def within_an_hour(name: str, select: str = TARGETS) -> str:
    """Return how much a counter grew within an hour, of exporters that answer now."""
    counter = metric(name, select)
    return f"increase({counter}[1h]) and {counter}"


POLL = total(series("poll_duration_seconds"), WHICH, "max")
#: The servers with the longest polls within the range: the same ones all along, also
#: while an exporter is down.
SLOWEST = (
    f"{POLL} and on ({WHICH}) topk(10, max by ({WHICH}) "
    f"(max_over_time({series('poll_duration_seconds')}[$__range] @ end())))"
)
#: 0 while exporters answer, so that "none" is not said of nothing.
NO_FAILURE = (
    f"label_replace(sum(rate({series('poll_errors_total')}[{INTERVAL}])) == 0, "
    '"reason", "no failed poll", "", "")'
)
#: 2 for a server that answers, 1 for one that does not, 0 for an exporter that does
#: not.
ANSWERS = (
    f"1 + {total(series('up'), WHICH, 'min')}\nor ({total(EXPORTERS, WHICH, 'max')} == "
    "0)"
)
#: States of a server, from good to bad.
STATES = word_mapping({2: ("▲ answering", BLUE), 1: VERDICTS[1], 0: VERDICTS[0]})

polls: list[Panel] = [
    StateTimeline(
        title="Target availability",
        description=(
            "Of each exporter and server. It explains gaps of other dashboards."
        ),
        targets=[over_time(ANSWERS, LEGEND)],
        mappings=STATES,
        no_value="no exporter is scraped",
    ),
    lines(
        "Failed polls by reason",
        (
            "refused: vLLM loads or is down; timeout: it is overloaded; malformed: an "
            "unsupported version."
        ),
        {},
        others=[
            over_time(
                (
                    "60 * (sum by (reason) "
                    f"(rate({series('poll_errors_total')}[{INTERVAL}])) > 0)\n"
                    f"or {NO_FAILURE}"
                ),
                "{{reason}}",
            )
        ],
        **A_MINUTE,
        no_value="no exporter answers",
    ),
    lines(
        "Poll duration",
        (
            "The ten slowest servers. Near --poll.timeout polls begin to fail: vLLM's "
            "API server is overloaded."
        ),
        {},
        others=[over_time(SLOWEST, LEGEND)],
        unit="s",
        least=0,
        no_value="no poll within the range",
    ),
    lines(
        "Scrape duration",
        "A scrape does not wait for vLLM: if it grows, the exporter lacks CPU.",
        {
            "slowest": (f"max({SCRAPE})", BLUE),
            "mean": (f"avg({SCRAPE})", SKY),
        },
        unit="s",
        least=0,
        no_value="no exporter is scraped",
    ),
    lines(
        "Engine restarts and inconsistent samples, 1 h",
        (
            "Restarts: see vLLM's log. Inconsistent samples that continue: a proxy "
            "changes numbers."
        ),
        {
            "restarts": (
                f"sum({within_an_hour('engine_resets_total', MODELS)})",
                ORANGE,
            ),
            "inconsistent": (
                f"sum({within_an_hour('inconsistent_samples_total', MODELS)})",
                GREY,
            ),
        },
        **COUNT,
        soft_most=1,
        no_value="no exporter answers",
        width=24,
    ),
]

tables: list[Panel] = [
    joined_table(
        "Exporters and servers",
        "Each exporter with the servers that it polls, the worst first.",
        {**PLACES, "target": "Server"},
        [
            Column("State", ANSWERS, mappings=STATES, filled=True, width=170),
            Column(
                "Age of data",
                (
                    "time() - "
                    f"{total(series('last_success_timestamp_seconds'), WHICH, 'max')}"
                ),
                "dtdurations",
                width=160,
            ),
            Column("Poll", POLL, "s", width=100),
            Column(
                "Failed polls, 1 h",
                f"sum by ({WHICH}) ({within_an_hour('poll_errors_total')})",
                decimals=0,
                width=140,
            ),
        ],
        no_value="no exporter is scraped",
        sort=("State", False),
    ),
    joined_table(
        "Thresholds in force",
        (
            "Lowest and highest if exporters differ. Change one with --threshold "
            "NAME=NUMBER."
        ),
        {"threshold": "Threshold"},
        [
            Column(
                "Lowest",
                f"min by (threshold) ({series('threshold')})",
                "none",
                width=110,
            ),
            Column(
                "Highest",
                f"max by (threshold) ({series('threshold')})",
                "none",
                width=110,
            ),
        ],
        no_value="no exporter answers",
        sort=("Threshold", False),
        width=24,
    ),
]
