"""Economics: the cost of speculation, and the speedup that follows.

* `cost`: the cost of a step with drafts, relative to one without; default thresholds by method.
* `profiles`: named cost profiles, shipped as data with their provenance, or from the operator's file.
* `hardware`: the cost from known hardware, by a roofline model, and its error. `architecture`, `model`: the
  size of a model, from its `config.json` or as given. `sizes`: sizes and accelerators as they are written.
* `step_time`: step times of an engine, learned online. `calibration`: the cost from measured step times.
* `speedup`: the published theory, the speedup of a measured acceptance under a cost profile, break-even, and
  the published return on speculation.
* `choice`: the speedup of every K. `statistics`: its confidence, and the intervals of all commands.
* `speculative_config`: vLLM's ``--speculative-config``, and the K schedule by batch size.
* `baseline`, `baseline_match`: speed without speculation, and the comparison with it.
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
