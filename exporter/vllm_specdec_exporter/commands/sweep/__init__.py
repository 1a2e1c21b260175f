"""The sweep: real requests at chosen temperatures, loads and prompts, and the acceptance that comes of them.

For programs::

    plan = SweepPlan(prompts=load_prompts(["code", "chat"]), temperatures=(0.0, 0.8))
    outcome = asyncio.run(run_sweep(plan, endpoint("http://127.0.0.1:8000"), directory=Path("sweep")))
    for cell in outcome.record.cells:
        print(cell.temperature, cell.acceptance_ratio, cell.acceptance_interval)

`grid` has the plan and its cells, `prompts` what is asked, `client` and `stream` the requests, `counters` the
server's side, `cell` one measurement, `runner` all of them, `record` the file, `statistics` and `conclusions`
what follows, `report` and `page` what people see.
"""

from ...economics.statistics import ClusterInterval, TimeSummary
from .endpoint import Endpoint, Unreachable, endpoint
from .grid import Cell, Message, Prompt, PromptSet, SweepPlan, Zone, Zones
from .grid import load as load_prompts
from .progress import SweepProgress
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
]
