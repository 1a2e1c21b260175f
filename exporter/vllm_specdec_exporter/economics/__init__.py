"""Economics: what speculation costs, and so what it gains.

* `cost`: what a step with drafts costs, relative to one without; the thresholds that fit a method.
* `profiles`: named costs, shipped as data with their provenance, or from the operator's file.
* `speedup`: the published theory, the speedup that a measured acceptance gives under a cost, its break-even,
  and the published return on speculation.
* `choice`: which K pays best, and how sure that is.
* `speculative_config`: vLLM's ``--speculative-config``, and the K schedule by batch size.
* `baseline`, `baseline_match`: how fast the server is without speculation, and the comparison with it.
"""

from .cost import CostProfile
from .profiles import BUILTIN, ProfileError, for_method, parse_profiles
from .speedup import Estimate, estimate, expected_tokens, return_on_speculation

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
