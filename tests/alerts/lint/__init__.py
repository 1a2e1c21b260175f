"""A linter of rule bundles: what `promtool check rules` lets pass, and must not.

Each check is a function of one rule (or group, or text) and of the bundle; it returns its complaints in
words, none where all is well. `CHECKS` and `ALERT_CHECKS` have those of rules; `EXCUSES` has what stands in
spite of a check, with the reason. `complaints` runs a check over a bundle.

What labels a series has is worked out from the expression (`Shape`); the level in a recorded name only has
to agree with it.
"""

from .bundle import ROOT, RULES, RUNBOOKS, Bundle, Rule, read_bundle, read_groups, records
from .checks import ALERT_CHECKS, CHECKS
from .excuses import EXCUSES, complaints, idle_excuses
from .expressions import parse
from .metrics import idle_thresholds, orphan, query_complaints
from .series import CAPTURES, PROMETHEUS, Known, exporter_metrics, raw_metrics, server_metrics
from .shapes import Shape, shape
from .templating import queries
from .vocabulary import (
    ACTIONS,
    DASHBOARDS,
    DISTINGUISHING,
    LEVELS,
    MODEL,
    PAGING,
    PREFIX,
    SEVERITIES,
    SUBJECTS,
    TARGET,
)

__all__ = [
    "ACTIONS",
    "ALERT_CHECKS",
    "CAPTURES",
    "CHECKS",
    "DASHBOARDS",
    "DISTINGUISHING",
    "EXCUSES",
    "LEVELS",
    "MODEL",
    "PAGING",
    "PREFIX",
    "PROMETHEUS",
    "ROOT",
    "RULES",
    "RUNBOOKS",
    "SEVERITIES",
    "SUBJECTS",
    "TARGET",
    "Bundle",
    "Known",
    "Rule",
    "Shape",
    "complaints",
    "exporter_metrics",
    "idle_excuses",
    "idle_thresholds",
    "orphan",
    "parse",
    "queries",
    "query_complaints",
    "raw_metrics",
    "read_bundle",
    "read_groups",
    "records",
    "server_metrics",
    "shape",
]
