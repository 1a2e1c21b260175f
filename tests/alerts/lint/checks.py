"""All checks of rules, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .alerts import alert_labels, decision, judgement, steadiness
from .annotations import links, summary, templates
from .joins import matching, regex_matcher
from .metrics import known_metrics, orphan
from .rates import bare_gauge, counters, offset, rate_of_sum, short_range

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .bundle import Bundle, Rule

    Check = Callable[[Rule, Bundle], list[str]]

#: Checks of every rule.
CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (
        counters, bare_gauge, rate_of_sum, matching, regex_matcher, short_range, offset, known_metrics,
        orphan,
    )
}  # fmt: skip
#: Checks of alerts only.
ALERT_CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (
        alert_labels, summary, links, steadiness, judgement, decision, templates,
    )
}  # fmt: skip
