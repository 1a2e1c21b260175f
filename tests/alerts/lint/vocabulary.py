"""The words that the bundle is written in: levels, labels, severities, subjects, actions."""

from __future__ import annotations

from itertools import product

PREFIX = "VLLMSpecDecode"
LEVELS = ("engine", "instance", "model")
#: What Prometheus attaches to a target, as far as the rules may name it.
TARGET = frozenset({"cluster", "namespace", "job", "instance", "pod"})
SEVERITIES = ("critical", "warning", "info", "none")
SUBJECTS = (
    "monitoring", "activity", "acceptance", "payoff", "latency", "load", "errors", "decision", "objective",
)  # fmt: skip
#: Subjects that may page: monitoring is lost, or users are hurt.
PAGING = ("monitoring", "payoff", "errors")
#: What a decision may ask for, and whether a K belongs to it.
ACTIONS = {
    "disable": True,
    "enable": True,
    "increase_k": True,
    "decrease_k": True,
    "switch_method": False,
    "measure": False,
}
#: Labels by which rules of one name may differ.
DISTINGUISHING = frozenset({"severity", "level", "reason", "against", "long_window", "short_window"})
#: Recorded for dashboards: every ratio at every level over every window, and what one panel needs besides.
DASHBOARDS = frozenset(
    f"{level}:vllm_specdec_{ratio}:ratio_rate{window}"
    for level, ratio, window in product(
        LEVELS,
        ("acceptance", "mean_acceptance_length", "coverage", "wasted_verification", "position_acceptance"),
        ("5m", "30m", "1h", "6h", "1d"),
    )
) | {"instance:vllm_specdec_speedup:ratio_rate5m"}
