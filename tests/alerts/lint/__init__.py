"""A linter of rule bundles: what `promtool check rules` lets pass, and must not.

Each check is a function of one rule and of the bundle; it returns its complaints in words, none where all is
well. `CHECKS` and `ALERT_CHECKS` have them by name; `EXCUSES` has what stands in spite of a check, with the
reason. `complaints` runs a check over a bundle.

What labels a series has is worked out from the expression (`Shape`).
"""

from .bundle import ROOT, RULES, RUNBOOKS, Bundle, Rule, read_bundle, read_groups, records
from .checks import ALERT_CHECKS, CHECKS
from .excuses import EXCUSES, complaints, idle_excuses
from .metrics import idle_thresholds, query_complaints
from .series import PROMETHEUS, raw_metrics
from .shapes import shape
from .vocabulary import ACTIONS, DASHBOARDS, TARGET

__all__ = [
    "ACTIONS",
    "ALERT_CHECKS",
    "CHECKS",
    "DASHBOARDS",
    "EXCUSES",
    "PROMETHEUS",
    "ROOT",
    "RULES",
    "RUNBOOKS",
    "TARGET",
    "Bundle",
    "Rule",
    "complaints",
    "idle_excuses",
    "idle_thresholds",
    "query_complaints",
    "raw_metrics",
    "read_bundle",
    "read_groups",
    "records",
    "shape",
]
