"""Cases of decisions.yml whose worlds take more than lives of engines."""

from collections.abc import Callable
from itertools import repeat

from .case import Table, Worlds, cases, never
from .histories import engines
from .world import MODEL, Phase, World

_DAY = 1500
_RAISED = "warning model action=increase_k recommended_k=4"


def k_that_ran(k: int, speed: float) -> Callable[[], World]:
    """Return what builds a model to which K=4 is advised all day, and on which another
    K has run before, at this load, so many times as fast as the present one.
    """

    def build() -> World:
        raised = Phase(_DAY, action="increase_k", recommended_k=4)
        world = engines([raised])()
        world.put(
            "model:vllm_specdec_tried_speedup_at:ratio",
            {
                "namespace": "chat",
                "model_name": MODEL,
                "num_speculative_tokens": str(k),
            },
            0,
            repeat(speed, _DAY),
        )
        return world

    return build


RAN: Table = {
    "a-larger-k-that-ran-and-was-faster": (k_that_ran(4, 1.07), {1485: _RAISED}),
    "a-larger-k-though-another-ran-slower": (k_that_ran(5, 0.9), {1485: _RAISED}),
}
RAN_IN_VAIN: Worlds = {
    "a-larger-k-that-ran-and-was-slower": k_that_ran(4, 0.98),
    "a-larger-k-that-ran-and-gained-4-percent": k_that_ran(4, 1.04),
}

CASES = (
    *cases("KChangeAdvised", RAN),
    *never("KChangeAdvised", 1485, RAN_IN_VAIN),
)
