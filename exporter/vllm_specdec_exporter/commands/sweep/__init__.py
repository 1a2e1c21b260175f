"""The sweep: real requests at several temperatures, loads and prompts, and their acceptance.

For programs::

    plan = SweepPlan(prompts=load_prompts(["code", "chat"]), temperatures=(0.0, 0.8))
    outcome = asyncio.run(run_sweep(plan, endpoint("http://127.0.0.1:8000"), directory=Path("sweep")))
    for cell in outcome.record.cells:
        print(cell.temperature, cell.acceptance_ratio, cell.acceptance_interval)

`grid` has the plan, its prompts and cells, `client` and `stream` the requests, `counters` the metrics of the
server, `cell` one measurement, `runner` all of them, `record` the file, `report` and `page` the output.
"""

from ...economics.statistics import ClusterInterval, TimeSummary
from .endpoint import Endpoint, Unreachable, endpoint
from .grid import Cell, Message, Prompt, PromptSet, SweepPlan, Zone, Zones
from .grid import load as load_prompts
from .progress import SweepProgress, show_progress
from .record import CellResult, ServerIdentity, Setup, Status, SweepRecord
from .record import load as load_record
from .report import conclusions
from .runner import OtherTraffic, SweepOutcome, run_sweep

__all__ = [
    "Cell",
    "CellResult",
    "ClusterInterval",
    "Endpoint",
    "Message",
    "OtherTraffic",
    "Prompt",
    "PromptSet",
    "ServerIdentity",
    "Setup",
    "Status",
    "SweepOutcome",
    "SweepPlan",
    "SweepProgress",
    "SweepRecord",
    "TimeSummary",
    "Unreachable",
    "Zone",
    "Zones",
    "conclusions",
    "endpoint",
    "load_prompts",
    "load_record",
    "run_sweep",
    "show_progress",
]
