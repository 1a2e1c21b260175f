"""Planning without a server: does a drafter fit, and what may it gain?

`make_plan` answers a `Question`::

    from vllm_specdec_exporter.commands import plan

    question = plan.Question(
        method=plan.METHODS["draft_model"],
        target=plan.from_parameters(plan.parse_parameters("70B"), plan.PRECISIONS["bf16"]),
        draft=plan.from_parameters(plan.parse_parameters("8B"), plan.PRECISIONS["bf16"]),
        gpus=plan.Gpus(count=2, memory=plan.parse_memory("141GB"), utilization=0.9),
        kv_precision=plan.PRECISIONS["bf16"],
    )
    print(plan.render(plan.make_plan(question)))

* `sizes`, `architecture` and `model` of `economics`: precisions, a `config.json`, numbers of parameters.
* `methods`: what each method needs, and the size of its heads.
* `estimates`: memory for keys and values, and the expected speedup.
* `checks`, `checklist`: the published checks, and the facts that only the operator knows.
* `planning`, `report`: the whole, as text and as JSON.
"""

from ...economics.architecture import Architecture, ArchitectureError, read_architecture
from ...economics.model import (
    Model,
    count_active_parameters,
    count_parameters,
    from_architecture,
    from_parameters,
)
from ...economics.sizes import PRECISIONS, Precision, parse_memory, parse_parameters, parse_precision
from .checklist import Answer, Checklist, Facts, Item, Objective, fill_in
from .checks import Check, Verdict, check_all
from .estimates import (
    BATCHES,
    Gpus,
    Memory,
    MemoryBudget,
    PlannedLoad,
    SpeedupByBatch,
    account,
    choose_profile,
    kv_per_token,
    look_ahead,
)
from .methods import METHODS, Drafter, Method, estimate_head
from .planning import Conclusion, Plan, Question, conclude, make_plan, speculative_config, to_document
from .report import render

__all__ = [
    "BATCHES",
    "METHODS",
    "PRECISIONS",
    "Answer",
    "Architecture",
    "ArchitectureError",
    "Check",
    "Checklist",
    "Conclusion",
    "Drafter",
    "Facts",
    "Gpus",
    "Item",
    "Memory",
    "MemoryBudget",
    "Method",
    "Model",
    "Objective",
    "Plan",
    "PlannedLoad",
    "Precision",
    "Question",
    "SpeedupByBatch",
    "Verdict",
    "account",
    "check_all",
    "choose_profile",
    "conclude",
    "count_active_parameters",
    "count_parameters",
    "estimate_head",
    "fill_in",
    "from_architecture",
    "from_parameters",
    "kv_per_token",
    "look_ahead",
    "make_plan",
    "parse_memory",
    "parse_parameters",
    "parse_precision",
    "read_architecture",
    "render",
    "speculative_config",
    "to_document",
]
