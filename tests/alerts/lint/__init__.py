"""A linter of rules: what `promtool check rules` accepts, and this project does not.

Whether an expression gives the right series is not checked here: the histories of the
tests show it.
"""

from .bundle import PREFIX, ROOT, RULES, RUNBOOKS, Bundle, Rule, read_bundle, records
from .checks import ALERT_CHECKS, CHECKS, complaints, idle_thresholds, query_complaints
from .series import PROMETHEUS, TARGET, raw_metrics

__all__ = [
    "ALERT_CHECKS",
    "CHECKS",
    "PREFIX",
    "PROMETHEUS",
    "ROOT",
    "RULES",
    "RUNBOOKS",
    "TARGET",
    "Bundle",
    "Rule",
    "complaints",
    "idle_thresholds",
    "query_complaints",
    "raw_metrics",
    "read_bundle",
    "records",
]
