"""K and cost: which K to have, at which load speculation pays, and what it throws away."""

from __future__ import annotations

from itertools import pairwise

from grafana_panels import annotations, links, tiles, variables
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import LIMIT, colored, fixed, limits, matching, named
from grafana_panels.palette import BLUE, GREY, ORANGE, SKY, VERMILION
from grafana_panels.panel import BarGauge, Panel, Stat, TimeSeries
from grafana_panels.promql import (
    IDENTITY,
    MODEL,
    MODEL_LEGEND,
    Flow,
    common,
    gauge,
    harmonic,
    threshold,
    total,
    weighted,
    windowed,
)
from grafana_panels.table import Column, joined
from grafana_panels.target import now, over_time
from grafana_panels.tiles import MOST_BARS, NOTHING, TIMES
from vllm_specdec_exporter.publish.metrics import SCHEDULED_BATCHES

FLOW = Flow()
GENERATED = windowed("generation_tokens_per_second")
BATCH = windowed("mean_batch_size")
#: Tokens that drafts emit: those accepted, and one more of each.
EMITTED = f"({windowed('drafts_per_second')} + {windowed('accepted_tokens_per_second')})"
K_LABEL = "num_speculative_tokens"
#: The K that bars mark, by the metrics that have them.
MARKED_K = {"in use": "num_speculative_tokens", "advised": "recommended_num_speculative_tokens"}
#: Share of the time that a load must have stood before a bar speaks of it; else it is only passed through.
STOOD = 0.05
#: Batch sizes that one bar stands for: above the first, up to the second.
LOADS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)


def at_k(k: int) -> str:
    """Return the estimated speedup that engines would have with a K."""
    return gauge("estimated_speedup_at", num_speculative_tokens=str(k))


def at_its_k(name: str) -> str:
    """Return the estimated speedup that engines have at a K that they name themselves."""
    mine = f'count_values without () ("{K_LABEL}", {gauge(name)})'
    return f"({gauge('estimated_speedup_at')} and on ({IDENTITY}, {K_LABEL}) {mine})"


def at_load(least: int, most: int | None) -> str:
    """Return the speedup over the time range while the mean batch was of a size: all tokens over all their plain time."""
    own = gauge("speedup")
    loaded = f"({BATCH} > {least})" if most is None else f"({BATCH} > {least} <= {most})"
    made = f"{GENERATED} and {loaded} and ignoring (window, basis) {own}"
    spent = f"({GENERATED} and {loaded}) / ignoring (window, basis) {own}"
    time, whole = (f"sum(count_over_time(({one})[$__range:$__interval]))" for one in (loaded, BATCH))
    return (
        f"sum(sum_over_time(({made})[$__range:$__interval])) "
        f"/ (sum(sum_over_time(({spent})[$__range:$__interval])) > 0) and {time} > {STOOD} * {whole}"
    )


def _load_name(least: int, most: int) -> str:
    return f"batch {most}" if least + 1 >= most else f"batch {least + 1}-{most}"


top: list[Panel] = [
    tiles.pays(5),
    tiles.change(7),
    tiles.speed(3),
    tiles.length(),
    Stat(
        title="Return on speculation",
        description=(
            "The published ROI: relative benefit over relative cost in memory and compute, of the selection, from "
            "`vllm_specdec_return_on_speculation_ratio` weighted with `vllm_specdec_accepted_tokens_per_second`. "
            "Below 1 the draft model's memory is better used as KV cache."
        ),
        targets=[
            now(
                harmonic(windowed("return_on_speculation_ratio"), windowed("accepted_tokens_per_second")),
                "return",
            )
        ],
        unit="short",
        decimals=1,
        no_value="needs --cost.*",
        width=5,
    ),
]

which_k: list[Panel] = [
    BarGauge(
        title="What would each K give?",
        description=(
            "Estimated speedup of drafts at each K at the current load, which is the basis of the advice, from "
            "`vllm_specdec_estimated_speedup_at` weighted with `vllm_specdec_generation_tokens_per_second`; K=0 "
            "means no speculation. Orange and grey bars: the K advised and the K in use, of the engines that have it. Follow the advice: "
            "a longer bar within noise changes nothing, and beyond the K in use bars are cautious estimates. "
            "*Speedup* differs from the bar in use: it is of all tokens, also those without drafts, and may be "
            "measured."
        ),
        targets=[
            *(
                now(
                    harmonic(at_its_k(name), GENERATED, K_LABEL, own=K_LABEL),
                    f"{words}: K={{{{{K_LABEL}}}}}",
                )
                for words, name in MARKED_K.items()
            ),
            *(
                now(
                    harmonic(at_k(k), GENERATED, own=K_LABEL) + common(at_k(k), at_k(0)),
                    f"K={k}",
                )
                for k in range(MOST_BARS + 1)
            ),
        ],
        **TIMES,
        color=fixed(BLUE),
        overrides=[
            matching("^in use:.*", color=fixed(GREY)),
            matching("^advised:.*", color=fixed(ORANGE)),
        ],
        no_value="no advice yet: too few drafts, or drafts vary",
        width=8,
        rows=13,
    ),
    TimeSeries(
        title="K in use and K advised",
        description=(
            "K of each model (`vllm_specdec_num_speculative_tokens`), the K that the exporter advises "
            "(`vllm_specdec_recommended_num_speculative_tokens`, 0 for no speculation) and the current K of the "
            "configured schedule (`vllm_specdec_scheduled_num_speculative_tokens`). If they differ for hours: "
            "change K."
        ),
        targets=[
            over_time(total(gauge("num_speculative_tokens"), MODEL, "max"), f"in use: {MODEL_LEGEND}"),
            over_time(
                total(gauge("recommended_num_speculative_tokens"), MODEL, "max"), f"advised: {MODEL_LEGEND}"
            ),
            over_time(
                total(gauge("scheduled_num_speculative_tokens"), MODEL, "max"), f"scheduled: {MODEL_LEGEND}"
            ),
        ],
        unit="short",
        decimals=0,
        least=0,
        steps=True,
        overrides=[
            matching("^in use:.*", color=fixed(BLUE)),
            matching("^advised:.*", color=fixed(ORANGE), custom__lineStyle={"fill": "dash", "dash": [8, 6]}),
            matching("^scheduled:.*", color=fixed(GREY), custom__lineWidth=1),
        ],
        no_value="K is not known",
        width=8,
        rows=13,
    ),
    BarGauge(
        title="Which K at which load?",
        description=(
            "The advised K schedule at some batch sizes, from "
            "`vllm_specdec_recommended_num_speculative_tokens_at`: the largest of the selected engines, 0 for no "
            "speculation. Paste the rows from the exporter's status page into "
            "num_speculative_tokens_per_batch_size."
        ),
        targets=[
            now(
                total(gauge("recommended_num_speculative_tokens_at", batch_size=str(size)), operator="max"),
                f"batch {size}",
            )
            for size in SCHEDULED_BATCHES
        ],
        unit="short",
        decimals=0,
        color=fixed(SKY),
        no_value="no schedule: several engines a server, a larger K to try first, or no advice",
        width=8,
        rows=13,
    ),
]

at_which_load: list[Panel] = [
    BarGauge(
        title="At which load does it pay?",
        description=(
            "Speedup over the time range by mean batch size: `vllm_specdec_speedup` by "
            "`vllm_specdec_mean_batch_size`, weighted with `vllm_specdec_generation_tokens_per_second`. A load "
            "that rarely occurred has no bar. Bars below the last one: draft less from that load on, if "
            "acceptance did not depend on the load."
        ),
        targets=[
            *(now(at_load(least, most), _load_name(least, most)) for least, most in pairwise(LOADS)),
            now(at_load(LOADS[-1], None), f"batch over {LOADS[-1]}"),
            now(threshold("harmful_speedup"), "harmful below"),
        ],
        **TIMES,
        color=fixed(BLUE),
        overrides=colored({"harmful below": VERMILION}),
        no_value=NOTHING,
        width=12,
        rows=10,
    ),
    TimeSeries(
        title="Acceptance against break-even",
        description=(
            "Acceptance rate (`vllm_specdec_accepted_tokens_total` over `vllm_specdec_draft_tokens_total`), and "
            "break-even at the current load (`vllm_specdec_break_even_acceptance_ratio`). The gap is the "
            "headroom. No gap: lower K, or use a cheaper drafter."
        ),
        targets=[
            over_time(FLOW.acceptance(), "acceptance"),
            over_time(
                weighted(windowed("break_even_acceptance_ratio"), windowed("draft_tokens_per_second")),
                LIMIT + "break-even",
            ),
        ],
        unit="percentunit",
        decimals=0,
        least=0,
        overrides=[*colored({"acceptance": BLUE}), limits(VERMILION)],
        no_value=NOTHING,
        width=12,
        rows=10,
    ),
]

thrown_away: list[Panel] = [
    TimeSeries(
        title="Accepted and rejected draft tokens",
        description=(
            "Accepted and rejected draft tokens per second, from `vllm_specdec_accepted_tokens_total` and "
            "`vllm_specdec_draft_tokens_total`. Rejected ones cost compute that a busy GPU needs for other "
            "requests: lower K when requests wait."
        ),
        targets=[
            over_time(FLOW.of("accepted_tokens"), "accepted"),
            over_time(f"clamp_min({FLOW.of('draft_tokens')} - {FLOW.of('accepted_tokens')}, 0)", "rejected"),
        ],
        unit="suffix:tokens/s",
        decimals=0,
        least=0,
        fill=25,
        stack=True,
        overrides=colored({"accepted": BLUE, "rejected": ORANGE}),
        no_value=NOTHING,
        width=12,
    ),
    TimeSeries(
        title="Estimated and measured speedup",
        description=(
            "Speedup of drafts by the cost profile (`vllm_specdec_estimated_speedup`; its `basis` says whether the "
            "cost is calibrated or modelled), and of all output against the recorded baseline "
            "(`vllm_specdec_measured_speedup`). Far apart: run calibrate, or use the measured value."
        ),
        targets=[
            over_time(
                harmonic(f"sum without (basis) ({windowed('estimated_speedup')})", EMITTED),
                "estimated, of drafts",
            ),
            over_time(
                harmonic(windowed("measured_speedup"), GENERATED),
                "measured, of all",
            ),
            over_time(threshold("harmful_speedup"), LIMIT + "harmful below"),
        ],
        **TIMES,
        overrides=[
            *colored({"estimated, of drafts": SKY, "measured, of all": BLUE}),
            limits(VERMILION),
        ],
        no_value=NOTHING,
        width=12,
    ),
    joined(
        "Which methods and cost profiles?",
        (
            "Method, draft model, cost profile and version of each deployment, with the number of engines, from "
            "`vllm_specdec_info`. An empty method or the profile *unknown*: set --spec.config in the exporter, or "
            "the speedup is a guess."
        ),
        {
            "cluster": "Cluster",
            "namespace": "Namespace",
            "model_name": "Model",
            "method": "Method",
            "draft_model": "Draft model",
            "cost_profile": "Cost profile",
            "dialect": "Dialect",
            "upstream_version": "vLLM",
        },
        [
            Column(
                "Engines",
                f"count by ({MODEL}, method, draft_model, cost_profile, dialect, upstream_version) ({gauge('info')})",
                decimals=0,
                width=90,
            )
        ],
        overrides=[named("Model", custom__width=270), named("Draft model", custom__width=270)],
        no_value="no engine is known",
        rows=5,
    ),
]

dashboard = Dashboard(
    uid="vllm-specdec-cost",
    title="K and cost",
    description="Which K should be set, at which load does speculation pay, and what does it throw away?",
    sections=[
        ("", top),
        ("Which K?", which_k),
        ("At which load?", at_which_load),
        ("What does it waste, and how is that known?", thrown_away),
    ],
    variables=variables.usual(),
    marks=annotations.usual(),
    links=links.to_all(),
)
