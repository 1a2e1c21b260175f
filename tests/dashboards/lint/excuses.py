"""What stands in spite of a check, and why: the `.lint` file of these dashboards."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from .checks import CHECKS, Complaint, said

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .document import Dashboard


@dataclass(frozen=True, slots=True)
class Excuse:
    """A complaint that stands by design.

    Attributes:
        check: the check that complains.
        dashboard: uid without the prefix `vllm-specdec-`, or a pattern of several.
        place: the panel, annotation or variable, or a pattern of several.
        words: what the complaint mentions.
        reason: why it stands.
    """

    check: str
    dashboard: str
    place: str
    words: str
    reason: str

    def covers(self, complaint: Complaint) -> bool:
        """Return whether it excuses a complaint."""
        return (
            self.check == complaint.check
            and fnmatchcase(complaint.uid, f"vllm-specdec-{self.dashboard}")
            and fnmatchcase(complaint.place, self.place)
            and self.words in complaint.words
        )


_UNITS = "no unit of Grafana's says what is counted, which the sign in its place does"
_HOUR = "counts of an hour, which say more of rare events than a rate"
_BOTH = "as far back as the requests that it is divided by, whatever the zoom: a tile is of now"
_OPEN = "as many as there are: told apart by name, and no colour judges"
_JUDGED = "a quantile or a share of the requests of a minute is chance: over what the exporter judges by"
_NEAR_1 = "what matters is the distance from 1, which an axis from 0 would flatten"

EXCUSES: tuple[Excuse, ...] = (
    Excuse("panel_units", "*", "*", "unit suffix:× is none", "a factor: neither a length nor a share"),
    Excuse("panel_units", "*", "*", "unit suffix:tokens/s is none", _UNITS),
    Excuse("panel_units", "*", "*", "unit suffix:/min is none", _UNITS),
    *(
        Excuse("zero_axis", dashboard, place, "", _NEAR_1)
        for dashboard, place in (
            ("payoff", "How fast, and where is break-even?"), ("acceptance", "Is acceptance as usual?"),
            ("payoff", "Mean acceptance length against break-even"), ("load", "Is it load or drafts?"),
            ("cost", "Speedup against running requests"), ("cost", "Estimated and measured speedup"),
            ("compare", "Speedup over time, A and B"), ("compare", "Mean acceptance length over time"),
        )
    ),
    *(
        Excuse("target_rate_interval", "exporter", place, "3600s", _HOUR)
        for place in ("Failed polls*", "Restarts of engines", "Which exporter, which server?")
    ),
    Excuse(
        "target_matchers", "compare", "*", "vllm_specdec_threshold:",
        "one line for both sides",
    ),
    Excuse(
        "query_matching", "exporter", "Which targets were up?", "pod, target and cluster",
        "an exporter that is down has no servers to tell apart",
    ),
    Excuse(
        "query_matching", "exporter", "Which exporter, which server?", "pod, target and cluster",
        "likewise",
    ),
    Excuse(
        "ratio_limits", "load", "Share of requests that fail", "from 0 to None",
        "a few in a hundred matter, which an axis to 1 would hide",
    ),
    Excuse(
        "ratio_limits", "cost", "Acceptance against break-even", "from 0 to None",
        "break-even above 1 says that no acceptance would pay",
    ),
    Excuse(
        "averaged_ratio", "load", "KV cache use", "vllm_specdec_kv_cache_usage_ratio",
        "the mean over engines is meant: the size of a cache is not known",
    ),
    Excuse(
        "query_counters", "*", "annotation Starts", "vllm_specdec_engine_resets_total",
        "compared with itself an hour ago: increase() would mark one restart for a whole range",
    ),
    Excuse(
        "query_denominator", "*", "*", "the denominator can be 0: count(",
        "a count of series is at least 1, or is not there",
    ),
    Excuse(
        "averaged_ratio", "acceptance", "Decline along the draft", "avg of a ratio: avg(ln(",
        "a geometric mean over positions, not over engines",
    ),
    Excuse(
        "averaged_ratio", "cost", "At which load does it pay?", "sum(count_over_time(",
        "samples are counted, not averaged",
    ),
    Excuse("target_rate_interval", "compare", "Tokens per second of a request", "300s", _BOTH),
    Excuse("target_rate_interval", "load", "Tokens per second", "300s", _BOTH),
    Excuse("target_rate_interval", "requests", "*", "$over", _JUDGED),
    Excuse(
        "query_counters", "requests", "variable *", "vllm_specdec_request_outcomes_total",
        "only its labels are asked for",
    ),
    *(
        Excuse("colour_modes", dashboard, "*", f"{{{{{label}}}}} has", _OPEN)
        for dashboard, label in (
            ("payoff", "model_name"), ("exporter", "target"), ("exporter", "reason"),
            ("exporter", "window"), ("requests", "request_type"), ("requests", "temperature"),
            ("requests", "reason"), ("requests", "tenant"),
        )
    ),
    Excuse("query_matching", "*", "*", "they differ in basis:", "an engine has one basis at a time"),
    Excuse(
        "query_matching", "*", "*", "have different labels (engine, model_name, state=",
        "the states of an engine, of which the aggregation around them takes the greatest code",
    ),
    Excuse(
        "query_matching", "payoff", "*lerts*", "ALERTS",
        "alerts have the labels of their rules, which a pattern of their names leaves open",
    ),
    Excuse(
        "target_matchers", "*", "Which alerts fire?", "ALERTS_FOR_STATE",
        "narrowed down by the ALERTS that it is matched with",
    ),
)  # fmt: skip


def complaints(check: str, dashboard: Dashboard) -> list[str]:
    """Return what a check has to say of a dashboard, excuses apart."""
    return [str(one) for one in said(check, dashboard) if not any(e.covers(one) for e in EXCUSES)]


def idle_excuses(dashboards: Iterable[Dashboard]) -> list[Excuse]:
    """Return the excuses that excuse nothing any more."""
    every = [one for dashboard in dashboards for check in CHECKS for one in said(check, dashboard)]
    return [excuse for excuse in EXCUSES if not any(excuse.covers(one) for one in every)]
