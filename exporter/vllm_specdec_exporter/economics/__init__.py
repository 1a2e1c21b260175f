"""Economics: the cost of speculation, and the speedup that follows."""

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
