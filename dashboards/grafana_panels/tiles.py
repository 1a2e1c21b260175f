"""Tiles that several dashboards have."""

from __future__ import annotations

from . import links, verdict
from .field import Json, words
from .panel import Stat
from .promql import Flow, gauge, most, share, shares, single, speedup, weighted, windowed
from .target import now

#: What stands where nothing is drafted.
NOTHING = "no drafts seen"
DRAFTS = windowed("drafts_per_second")
#: What a draft must emit to be worth its cost.
BREAK_EVEN = weighted(windowed("break_even_acceptance_length"), DRAFTS)
TIMES: Json = {"unit": "suffix:×", "decimals": 2}
RATIO: Json = {"unit": "percentunit", "decimals": 0, "least": 0, "most": 1}
LENGTH: Json = {"unit": "short", "decimals": 2}
#: Events a minute by kind, one upon the other; a single one does not fill the panel.
A_MINUTE: Json = {"unit": "suffix:/min", "decimals": 1, "least": 0, "soft_most": 1, "stack": True, "fill": 25}

#: As many positions and K as have a bar.
MOST_BARS = 16

TILE = Flow(now=True)
WHY = [links.to_here("Why: acceptance anatomy", "vllm-specdec-acceptance")]
COST = [links.to_here("Why: K and cost", "vllm-specdec-cost")]


def pays(width: int = 6) -> Stat:
    """Return the verdict."""
    return Stat(
        title="Does speculation pay?",
        description=(
            "Verdict for the selected engines that draft: `vllm_specdec_speedup` of all their tokens compared "
            "with the thresholds in force, or their state (`vllm_specdec_activity`) if there is no verdict. "
            "HARMFUL: follow *What to change?* BYPASSED: speculation is configured but nothing is drafted, see "
            "vLLM's log. DOWN: see *Exporter health*."
        ),
        targets=[now(verdict.of_all(), "verdict")],
        mappings=words(verdict.VERDICTS),
        background=True,
        width=width,
        no_value="NO EXPORTER",
        links=COST,
    )


def speed(width: int = 4) -> Stat:
    """Return the speedup."""
    return Stat(
        title="Speedup",
        description=(
            "Speed of the engines that draft, relative to no speculation: all their tokens over their cost in "
            "plain steps, from `vllm_specdec_speedup`. Below 1 speculation loses: lower K, or disable it at this "
            "load."
        ),
        targets=[now(speedup(), "speedup")],
        **TIMES,
        no_value=NOTHING,
        width=width,
        links=COST,
    )


def change(width: int = 8) -> Stat:
    """Return the advice."""
    return Stat(
        title="What to change?",
        description=(
            "The advice for most of the drafts (`vllm_specdec_recommendation`), with the K in use and the advised "
            "K, or a note that there are several (`vllm_specdec_num_speculative_tokens`, "
            "`vllm_specdec_recommended_num_speculative_tokens`). *K and cost* shows the reason and the newest "
            "estimates; advice follows once they are certain. Copy the configuration from the exporter's status "
            "page or `vllm-specdec-exporter check`."
        ),
        targets=[
            now(
                most(
                    share(gauge("recommendation"), DRAFTS, "action"),
                    "action",
                    verdict.words_of(verdict.ACTIONS),
                )
                + ' or on () label_replace(vector(0), "action", "no advice yet", "", "")',
                "{{action}}",
            ),
            now(single(gauge("num_speculative_tokens")), "K is {{k}}"),
            now(single(gauge("recommended_num_speculative_tokens")), "advised: {{k}}"),
        ],
        text="name",
        unit="short",
        background=True,
        overrides=verdict.colors_of(verdict.ACTIONS),
        no_value="no advice",
        width=width,
        links=COST,
    )


def quality() -> Stat:
    """Return the quality of acceptance."""
    return Stat(
        title="Acceptance quality",
        description=(
            "Quality by the published rubric, with the share of drafts at each level, from "
            "`vllm_specdec_quality`. Poor acceptance may still pay if drafts are cheap; the verdict decides. "
            "Poor: see *Acceptance anatomy*."
        ),
        targets=[
            now(
                shares(share(gauge("quality"), DRAFTS, "level"), "level", verdict.words_of(verdict.QUALITY)),
                "{{level}}",
            )
        ],
        text="value_and_name",
        **RATIO,
        background=True,
        overrides=verdict.colors_of(verdict.QUALITY),
        no_value="not judged",
        links=WHY,
    )


def acceptance() -> Stat:
    """Return the acceptance rate."""
    return Stat(
        title="Acceptance rate",
        description=(
            "Accepted over draft tokens of the selection, over the exporter's window, from "
            "`vllm_specdec_accepted_tokens_per_second` and `vllm_specdec_draft_tokens_per_second`. Alone it is "
            "not conclusive: compare the mean acceptance length with its break-even."
        ),
        targets=[now(TILE.acceptance(), "acceptance")],
        **{**RATIO, "decimals": 1},
        no_value=NOTHING,
        links=WHY,
    )


def length() -> Stat:
    """Return the mean acceptance length beside its break-even."""
    return Stat(
        title="Acceptance length",
        description=(
            "Mean acceptance length (tokens per draft) and its break-even at this load, from "
            "`vllm_specdec_accepted_tokens_per_second`, `vllm_specdec_drafts_per_second` and "
            "`vllm_specdec_break_even_acceptance_length`. Below break-even: lower K, or disable."
        ),
        targets=[now(TILE.length(), "now"), now(BREAK_EVEN, "break-even")],
        text="value_and_name",
        **LENGTH,
        no_value=NOTHING,
        links=COST,
    )
