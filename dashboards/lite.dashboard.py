"""Lite: what vLLM's own series say, for which it needs neither exporter nor rules; and
the verdict, where they are.
"""

from grafana_panels import annotations, glossary, variables, verdict
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import COUNT, LENGTH, RATIO, positions
from grafana_panels.latency import latency
from grafana_panels.models import models_table
from grafana_panels.palette import BLUE, GREY, ORANGE, POSITIONS, SKY
from grafana_panels.panel import Panel, lines, over_time
from grafana_panels.promql import INTERVAL, MODEL, MODEL_LEGEND, total
from grafana_panels.promql import growth as growth_of
from grafana_panels.variables import LABELS, MODELS, selector
from grafana_panels.vllm import SPECULATES, growth, summed_rate

UNDRAFTED = "vLLM is not scraped, or drafts nothing"
_ACCEPTED, _DRAFTED, _DRAFTS = (
    f"spec_decode_num_{name}_total"
    for name in ("accepted_tokens", "draft_tokens", "drafts")
)
_BY_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
_EACH, _EACH_DRAFTS = (
    f"increase(«vllm»{name}{{{MODELS}}}[{INTERVAL}])"
    for name in (_BY_POSITION, _DRAFTS)
)
#: Of the engines that draft so far: a K of 3 does not make the fourth position worse.
_SHARE_BY_POSITION = (
    f"{growth(_BY_POSITION, 'position')} / (sum by (position) "
    f"(0 * {_EACH} + ignoring (position) group_left () {_EACH_DRAFTS}) > 0)"
)

#: Of a model that both serve, there are two lines.
_SGLANG_LEGEND = f"{MODEL_LEGEND} (SGLang)"


def _sglang(name: str) -> str:
    return growth_of(f"«sglang»{name}_total", by=MODEL)


#: SGLang counts no drafts: each verification gives its accepted tokens and one more,
#: and the token that a request's prompt gives is of none.
_LENGTH_OF_SGLANG = (
    f"({_sglang('generation_tokens')} - {_sglang('num_requests')}) "
    f"/ ({_sglang('spec_verify_calls')} > 0)"
)
#: K, where drafts are no trees: of those the drafted tokens are unknown.
_K_OF_SGLANG = (
    f"max by ({MODEL}) («sglang»spec_num_steps{{{MODELS}}} "
    f"== «sglang»spec_num_draft_tokens{{{MODELS}}} - 1)"
)

model = models_table(
    "Verdict, and what to do",
    "Needs the exporter. Whether speculation pays follows from no panel below alone.",
    "no exporter: the panels below need none",
    states=verdict.of_models(),
    why_width=230,
    rows=7,
)

drafts: list[Panel] = [
    lines(
        "Acceptance rate",
        "Accepted over draft tokens. What is enough depends on costs: see the verdict.",
        {},
        others=[
            over_time(
                f"{growth(_ACCEPTED, MODEL)} / ({growth(_DRAFTED, MODEL)} > 0)",
                MODEL_LEGEND,
            ),
            over_time(
                f"clamp(({_LENGTH_OF_SGLANG} - 1) / {_K_OF_SGLANG}, 0, 1)",
                _SGLANG_LEGEND,
            ),
        ],
        **RATIO,
        no_value=UNDRAFTED,
        width=8,
    ),
    lines(
        "Acceptance length",
        "Tokens per draft with the model's own: from 1, where drafts are for nothing.",
        {},
        others=[
            over_time(
                f"1 + {growth(_ACCEPTED, MODEL)} / ({growth(_DRAFTS, MODEL)} > 0)",
                MODEL_LEGEND,
            ),
            over_time(f"clamp_min({_LENGTH_OF_SGLANG}, 1)", _SGLANG_LEGEND),
        ],
        **LENGTH,
        no_value=UNDRAFTED,
        width=8,
    ),
    lines(
        "Acceptance by position, all models together",
        "Of drafts of vLLM that are so long. Late lines near 0: lower K.",
        {},
        others=[
            over_time(
                # Prometheus sorts by labels, as texts: 10 would come before 2.
                f'label_replace({_SHARE_BY_POSITION}, "digits", "1", "position", ".")',
                "position {{position}}",
            )
        ],
        **RATIO,
        overrides=positions(POSITIONS, GREY),
        no_value="vLLM is not scraped, or drafts nothing; SGLang counts none",
        width=8,
    ),
]

throughput: list[Panel] = [
    lines(
        "Tokens per second of vLLM",
        "All output, accepted draft tokens in it, and rejected draft tokens.",
        {
            "output": (summed_rate("generation_tokens_total"), BLUE),
            "accepted": (summed_rate(_ACCEPTED), SKY),
            "rejected": (
                f"clamp_min({summed_rate(_DRAFTED)} - {summed_rate(_ACCEPTED)}, 0)",
                ORANGE,
            ),
        },
        unit="suffix:tokens/s",
        decimals=0,
        least=0,
        no_value=UNDRAFTED,
    ),
    lines(
        "Requests running and waiting, of vLLM",
        "A growing queue: add replicas, or draft less to free GPU time.",
        {
            name: (total(f"«vllm»num_requests_{name}{{{MODELS}}}"), color)
            for name, color in (("running", BLUE), ("waiting", ORANGE))
        },
        **COUNT,
        no_value="vLLM is not scraped",
    ),
]


def _of_servers() -> list[variables.Json]:
    """Return the variables of labels, from the series of servers that speculate."""
    queries = []
    chosen = list[str]()
    for name, heading in LABELS.items():
        series = SPECULATES.replace("{}", f"{{{selector(chosen)}}}")
        queries.append(
            variables.query(name, heading, f"label_values({series}, {name})")
        )
        chosen.append(name)
    return queries


dashboard = Dashboard(
    uid="vllm-specdec-lite",
    title="Lite",
    description=(
        "What do vLLM's own series say of speculation, without exporter and rules?"
    ),
    page="dashboards.md",
    sections=[("", [glossary.of_models(), model, *drafts, *throughput, *latency])],
    variables=[
        variables.datasource(),
        *_of_servers(),
        variables.window(),
        variables.filters(),
    ],
    marks=annotations.marks(),
)
