"""A linter of dashboards: the rules of grafana/dashboard-linter, and our own.

Each check is a function of a dashboard, of a panel or of a query; it returns its complaints in words, none
where all is well. `CHECKS` has their names; `EXCUSES` has what stands in spite of a check, with the reason.
"""

from . import colours, links
from .checks import CHECKS, said
from .document import DASHBOARDS, ROOT, Dashboard, Panel, read_dashboards
from .excuses import Excuse, complaints, idle_excuses
from .form import UIDS, repeated_uids
from .queries import Query

__all__ = [
    "CHECKS",
    "DASHBOARDS",
    "ROOT",
    "UIDS",
    "Dashboard",
    "Excuse",
    "Panel",
    "Query",
    "colours",
    "complaints",
    "idle_excuses",
    "links",
    "read_dashboards",
    "repeated_uids",
    "said",
]
