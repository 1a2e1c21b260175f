"""What the checks have to say of a bundle, but for what stands by design."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .checks import ALERT_CHECKS, CHECKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .bundle import Bundle, Rule

#: Why several complaints stand.
_EITHER = "a model with several methods is judged by method, and every other as a whole"
#: Complaints that stand by design: check, rule, what the complaint mentions; and why.
EXCUSES: Mapping[tuple[str, str, str], str] = {
    ("bare_gauge", "model:vllm_specdec_restarts:count2h", "vllm_specdec_info"): (
        "an engine that was not there two hours ago is a new one"
    ),
    ("matching", "VLLMSpecDecodeCollapsed", "the sides of or"): _EITHER,
    ("matching", "VLLMSpecDecodeHarmful", "the sides of or"): _EITHER,
    ("judgement", "VLLMSpecDecodeRulesBlind", "judges"): "it asks whether thresholds are there",
    (
        "steadiness",
        "VLLMSpecDecodeDisable",
        "no for",
    ): "it is there while two alerts fire that wait themselves",
}


def complaints(bundle: Bundle, check: str) -> list[str]:
    """Return what a check has to say of the rules of a bundle, excuses apart."""
    return [
        f"{rule.title}: {words}" for rule, words in _said(bundle, check) if not _excuse(check, rule, words)
    ]


def idle_excuses(bundle: Bundle) -> list[str]:
    """Return the excuses that excuse nothing any more."""
    checks = {check for check, _, _ in EXCUSES}
    used = {_excuse(check, rule, words) for check in checks for rule, words in _said(bundle, check)}
    return [", ".join(key) for key in EXCUSES if key not in used]


def _said(bundle: Bundle, check: str) -> list[tuple[Rule, str]]:
    """Return all that a check has to say, and of which rule."""
    run = {**CHECKS, **ALERT_CHECKS}[check]
    rules = bundle.alerts if check in ALERT_CHECKS else bundle.rules
    return [(rule, words) for rule in rules for words in run(rule, bundle)]


def _excuse(check: str, rule: Rule, words: str) -> tuple[str, str, str] | None:
    """Return the excuse of a complaint."""
    return next((key for key in EXCUSES if key[:2] == (check, rule.name) and key[2] in words), None)
