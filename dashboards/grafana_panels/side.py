"""A side of a comparison: one of two selections, with variables of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .promql import IDENTITY, INTERVAL, Flow, gauge, per_request, speedup, total
from .variables import LABELS, query, selector

if TYPE_CHECKING:
    from .field import Json

#: What both sides share, and what each chooses for itself.
SHARED = ("cluster", "job")
OWN = ("namespace", "model_name", "pod", "instance", "target", "engine")
#: K of every engine, 0 where there is no speculation.
K_OR_NONE = "vllm_specdec_num_speculative_tokens{select} or on ({identity}) 0 * vllm_specdec_info{select}"


def k_of(select: str = "") -> str:
    """Return K of the engines, 0 for those that do not speculate."""
    return K_OR_NONE.format(select=f"{{{select}}}" if select else "", identity=IDENTITY)


@dataclass(frozen=True)
class Side:
    """One of the two selections."""

    name: str
    color: str

    @property
    def prefix(self) -> str:
        """What its variables begin with."""
        return f"{self.name.lower()}_"

    @property
    def select(self) -> str:
        """What selects its series."""
        return f"{selector(SHARED)},{selector(OWN, self.prefix)}"

    @property
    def keep(self) -> str:
        """What its engines must match besides: method and K, which the series do not carry."""
        method = gauge("info", f'{self.select},method=~"${self.prefix}method"')
        return f" and on ({IDENTITY}) {method} and on ({IDENTITY}) (({k_of(self.select)}) == ${self.prefix}k)"

    def flow(self, *, now: bool = False) -> Flow:
        """Return its ratios."""
        return Flow(select=self.select, now=now, keep=self.keep)

    def speedup(self) -> str:
        """Return its speedup."""
        return speedup("", self.select, self.keep)

    def gauge(self, name: str) -> str:
        """Return the sum of one of its gauges."""
        return total(gauge(name, self.select) + self.keep)

    def per_request(self, *, now: bool = False) -> str:
        """Return the tokens a second of each request in its batches."""
        return per_request(self.select, self.keep, now=now)

    def at_position(self, position: int) -> str:
        """Return the share of drafts accepted at a position, of the engines that draft so far."""
        match = f'{self.select},position="{position}"'
        accepted = f"rate({gauge('accepted_tokens_per_position_total', match)}[{INTERVAL}])"
        drafts = f"rate({gauge('drafts_total', self.select)}[{INTERVAL}])"
        reached = f"(0 * {accepted} + ignoring (position) group_left () {drafts})"
        return f"{total(accepted + self.keep)} / ({total(reached + self.keep)} > 0)"

    def variables(self) -> list[Json]:
        """Return the variables that choose it."""
        found, before = [], selector(SHARED)
        for label in OWN:
            heading, every = LABELS[label]
            expr = f"label_values(vllm_specdec_info{{{before}}}, {label})"
            found.append(query(self.prefix + label, f"{self.name}: {heading.lower()}", expr, every=every))
            before += f",{selector((label,), self.prefix)}"
        methods = f"label_values(vllm_specdec_info{{{before}}}, method)"
        found.append(query(f"{self.prefix}method", f"{self.name}: method", methods, every=".*"))
        found.append(
            query(
                f"{self.prefix}k",
                f"{self.name}: K",
                f'query_result(count_values("k", {k_of(before)}))',
                # Every K equals itself.
                every=f"on ({IDENTITY}) group_left () max by ({IDENTITY}) ({k_of()})",
                regex='/k="([^"]+)"/',
                several=False,
                sort=3,
            )
        )
        return found


def either() -> str:
    """Return what selects the series of either side."""
    return ",".join((selector(SHARED), *(f'{label}=~"$a_{label}|$b_{label}"' for label in OWN)))


def either_alert() -> str:
    """Return what selects the alerts of either side: those of a model have no engine, some have no model."""
    return f"{selector(('cluster',))},{_own('namespace')},{_own('model_name')}"


def _own(label: str) -> str:
    return f'{label}=~"$a_{label}|$b_{label}|"'
