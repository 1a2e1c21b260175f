"""Acceptance rates prescribed to llama.cpp's server (--spec-synth-rates), and what must
be published.
"""

import math
from dataclasses import dataclass

from vllm_specdec_exporter.observe.result import EngineResult

#: A cost that is taken to be measured: each drafted token costs a tenth of a plain
#: step.
COST = 0.1
COST_FILE = """
profiles:
  known:
    provenance: a drafted token costs a tenth of a plain step
    basis: calibrated
    uncertainty: 0.05
    target: {fixed: 1.0}
    draft: {per_position: 0.1}
"""
#: Requests of a run.
REQUESTS = 24
#: Standard errors by which a share of independent drafts may differ from its rate: one
#: failure in a million.
_SIGMA = 5.0


@dataclass(frozen=True)
class Prescribed:
    """A set of rates: at index i, the share of drafts whose first i + 1 tokens are
    accepted.
    """

    rates: tuple[float, ...]
    #: Of payoff, by hand: L(4) / (1 + 4 x COST), where L(k) is 1 + the first k rates.
    verdict: str
    action: str  # the advice, by hand: the k with the largest L(k) / (1 + k x COST)
    ks: tuple[int, ...]  # the numbers of tokens that may be advised

    @property
    def length(self) -> float:
        """The mean acceptance length."""
        return 1 + sum(self.rates)


SETS = {
    "healthy": Prescribed(
        (0.90, 0.81, 0.73, 0.66), "beneficial", "increase_k", (5, 6, 7, 8)
    ),
    "flat": Prescribed(
        (0.62, 0.60, 0.58, 0.56), "beneficial", "increase_k", (5, 6, 7, 8)
    ),
    "decaying": Prescribed((0.80, 0.60, 0.10, 0.03), "beneficial", "decrease_k", (2,)),
    "low": Prescribed((0.35, 0.12, 0.04, 0.01), "marginal", "decrease_k", (1, 2)),
    "collapsed": Prescribed((0.05, 0.01, 0.001, 0.0005), "harmful", "disable", (0,)),
}


def differences(result: EngineResult, wanted: Prescribed, requests: int) -> list[str]:
    """Return what `result` has otherwise than it must, each in words.

    The tolerance follows from the number of drafts. In the last draft of each request
    tokens are cut off.
    """
    window = result.window(result.judged_window)
    if window is None or not window.drafts:
        return ["no drafts"]
    wrong = []
    drafts = window.drafts

    def compare(
        name: str, value: float | None, expected: float, variance: float
    ) -> None:
        allowed = _SIGMA * math.sqrt(variance / drafts) + requests / drafts
        if value is None or abs(value - expected) > allowed:
            wrong.append(
                f"{name}: {value} instead of {expected:g}, allowed are {allowed:.3g}"
            )

    if len(window.position_acceptance_ratio) != len(wanted.rates):
        wrong.append(f"positions: {window.position_acceptance_ratio}")
    for position, (value, rate) in enumerate(
        zip(window.position_acceptance_ratio, wanted.rates, strict=False)
    ):
        compare(f"position {position}", value, rate, rate * (1 - rate))
    # Accepted tokens of a draft: their square is summed over the positions that all of
    # them reach.
    square = sum(
        (2 * position + 1) * rate for position, rate in enumerate(wanted.rates)
    )
    variance = square - (wanted.length - 1) ** 2
    k = len(wanted.rates)
    compare(
        "acceptance", window.acceptance_ratio, (wanted.length - 1) / k, variance / k**2
    )
    compare("length", window.mean_acceptance_length, wanted.length, variance)
    for name, value, expected in (
        ("activity", result.activity.state, ("active",)),
        ("verdict", result.payoff.verdict, (wanted.verdict,)),
        ("advice", result.advice.action, (wanted.action,)),
        ("advised K", result.advice.num_speculative_tokens, wanted.ks),
    ):
        if value not in expected:
            wrong.append(f"{name}: {value} instead of {expected}")
    return wrong
