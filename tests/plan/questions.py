"""Questions for tests: one that nothing speaks against, to change in one point."""

from plan.configs import LLAMA_8B, LLAMA_70B
from vllm_specdec_exporter.commands.plan.checklist import Facts, Item, Objective
from vllm_specdec_exporter.commands.plan.checks import Check
from vllm_specdec_exporter.commands.plan.estimates import Gpus, PlannedLoad
from vllm_specdec_exporter.commands.plan.methods import METHODS
from vllm_specdec_exporter.commands.plan.planning import Plan, Question
from vllm_specdec_exporter.economics.architecture import read_architecture
from vllm_specdec_exporter.economics.model import from_architecture
from vllm_specdec_exporter.economics.sizes import PRECISIONS

BF16 = PRECISIONS["bf16"]
GOOD_FACTS = Facts((0.0, 0.2), Objective.TPOT, True, True, True, True, True)
GOOD = Question(
    method=METHODS["draft_model"],
    target=from_architecture(read_architecture(LLAMA_70B), BF16),
    draft=from_architecture(read_architecture(LLAMA_8B), BF16),
    gpus=Gpus(4, 80e9, 0.9),
    kv_precision=BF16,
    k=3,
    acceptance=0.8,
    load=PlannedLoad(4096, 32),
    facts=GOOD_FACTS,
    drafter_name="meta-llama/Llama-3.1-8B",
)


def check(plan: Plan, name: str) -> Check:
    """Return the check of this name."""
    (found,) = (check for check in plan.checks if check.name == name)
    return found


def use(plan: Plan, name: str) -> Item:
    """Return the condition of this name for using it."""
    (found,) = (item for item in plan.checklist.use if item.name == name)
    return found


def leave_off(plan: Plan, name: str) -> Item:
    """Return the reason of this name for leaving it off."""
    (found,) = (item for item in plan.checklist.leave_off if item.name == name)
    return found
