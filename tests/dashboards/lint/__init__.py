"""A linter of dashboards: the rules of grafana/dashboard-linter, and our own.

Each check is a function of a dashboard, of a panel or of a query; it returns its complaints in words, none
where all is well. `CHECKS` has their names; `EXCUSES` has what stands in spite of a check, with the reason.
What the rules of grafana/dashboard-linter are called there is in `GRAFANA_RULES`.
"""

from . import colours, links
from .checks import CHECKS, DASHBOARD_CHECKS, PANEL_CHECKS, QUERY_CHECKS, Complaint, said
from .document import DASHBOARDS, ROOT, Dashboard, Panel, Target, Variable, read_dashboards
from .excuses import EXCUSES, Excuse, complaints, idle_excuses
from .form import UIDS, repeated_uids
from .queries import Query, queries, readable

#: The rules of grafana/dashboard-linter, and the checks that stand for them here.
GRAFANA_RULES = {
    "template-datasource-rule": ("template_datasource",),
    "template-job-rule": ("template_job", "template_choice", "template_label"),
    "template-instance-rule": ("template_instance", "template_choice", "template_label"),
    "template-label-promql-rule": ("template_label", "target_promql"),
    "template-on-time-change-reload-rule": ("template_on_time_change_reload",),
    "panel-datasource-rule": ("panel_datasource",),
    "panel-title-description-rule": ("panel_title", "panel_title_description"),
    "panel-units-rule": ("panel_units",),
    "panel-no-targets-rule": ("panel_no_targets",),
    "target-promql-rule": ("target_promql",),
    "target-rate-interval-rule": ("target_rate_interval",),
    "target-job-rule": ("target_matchers",),
    "target-instance-rule": ("target_matchers",),
    "target-counter-agg-rule": ("query_counters",),
    "uneditable-dashboard": ("uneditable_dashboard",),
    # These are of Loki, which nothing here asks.
    "target-logql-rule": (),
    "target-logql-auto-rule": (),
}

__all__ = [
    "CHECKS",
    "DASHBOARDS",
    "DASHBOARD_CHECKS",
    "EXCUSES",
    "GRAFANA_RULES",
    "PANEL_CHECKS",
    "QUERY_CHECKS",
    "ROOT",
    "UIDS",
    "Complaint",
    "Dashboard",
    "Excuse",
    "Panel",
    "Query",
    "Target",
    "Variable",
    "colours",
    "complaints",
    "idle_excuses",
    "links",
    "queries",
    "read_dashboards",
    "readable",
    "repeated_uids",
    "said",
]
