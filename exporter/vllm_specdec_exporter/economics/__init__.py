"""Economics: what speculation costs, and so what it gains.

* `formulas`: the published theory, for acceptance that is the same at every position.
* `cost`: what a step with drafts costs, relative to one without.
* `profiles`: named costs, shipped as data with their provenance, or from the operator's file.
* `estimate`: the speedup that a measured acceptance gives under a cost, and where it breaks even.
* `criteria`: the thresholds that fit a method: published, or from its break-even.
* `choice`: which K pays best, and how sure that is.
* `schedule`: which K pays best at which batch size, as vLLM takes it.
* `returns`: the published return on speculation.
"""

from .cost import CostProfile
from .estimate import Estimate, estimate
from .formulas import expected_tokens
from .profiles import BUILTIN, ProfileError, for_method, parse_profiles
from .returns import return_on_speculation

__all__ = [
    "BUILTIN",
    "CostProfile",
    "Estimate",
    "ProfileError",
    "estimate",
    "expected_tokens",
    "for_method",
    "parse_profiles",
    "return_on_speculation",
]
