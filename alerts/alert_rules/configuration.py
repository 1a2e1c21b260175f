"""Have the rules what they need, and is the configuration in force?"""

from . import harm, requests, tap
from . import series as s
from . import text as t
from .recording import THRESHOLDS
from .rule import Alert, Record

_NAMED = s.SPECULATIVE.replace("}", ',model_name!=""}')


#: Thresholds that the rules read by exporter.
_OF_TARGETS = (*requests.THRESHOLDS, tap.UNRECORDED, harm.WIDENED)


#: Series whose own label Prometheus renamed, because the scrape target has one of that
#: name.
_OWN = (
    ("threshold", "threshold"),
    ("window_drafts", "window"),
    ("payoff", "verdict"),
    ("info", "method"),
    ("up", "target"),
    ("activity", "state"),
    ("activity", "model_name"),
    ("activity", "engine"),
)


_RENAMED = " or ".join(
    f'last_over_time(vllm_specdec_{name}{{exported_{label}!=""}}[{s.LOOK_BACK}])'
    for name, label in _OWN
)


#: What Prometheus lacks of an exporter, by the label `lack`.
_LACK = "instance:vllm_specdec_lack:info"


def rules() -> tuple[Record | Alert, ...]:
    """Return the rules, each record before its alert."""
    return (_sidecar_missing(), _lacks(), _rules_blind(), _reload_failed())


def _sidecar_missing() -> Alert:
    return Alert(
        name="SidecarMissing",
        subject="monitoring",
        level="",
        expr=(
            f"count by ({s.POD}, model_name) ({s.SPECULATIVE})\n"
            f"unless on ({s.POD}) {s.UP}\n"
            f"and on ({s.NAMESPACE}) (\n"
            f"  {s.SPECULATIVE} and on ({s.POD}) {s.UP}\n"
            ")"
        ),
        hold="15m",
        keep="5m",
        summary="A vLLM with speculation has no exporter.",
        description=(
            f"vLLM{{{{ with $labels.pod }}}} in pod {{{{ . }}}}{{{{ end }}}}{t.IN} "
            "serves a model with speculation, and Prometheus scrapes no exporter of "
            f"that pod, though other pods have one. Model: {t.NAME}."
        ),
        action="Add the sidecar to the pod template, or its port to the scrape job.",
        why=(
            "Only if vLLM itself is scraped, series have the label pod, and another "
            "pod has both: one exporter for several servers is not a sidecar. Without "
            "any exporter, MonitoringLost fires."
        ),
    )


def _lacks() -> Record:
    info, active, judged = (
        f"last_over_time(vllm_specdec_{each}[{s.LOOK_BACK}])"
        for each in ("info", 'activity{state="active"}', "state_code")
    )
    # Those of models are counted where the rules have them: reading them again from
    # each exporter would be the dearest of all rules.
    of_models = f"count by ({s.MODEL}) ({s.THRESHOLD}) == {len(THRESHOLDS)}"
    names = "|".join(_OF_TARGETS)
    of_targets = f'vllm_specdec_threshold{{threshold=~"{names}"}}'
    # Each once: a pair of Prometheus servers may have everything twice.
    there = (
        f"count by ({s.TARGET}) (group by ({s.TARGET}, threshold) "
        f"(last_over_time({of_targets}[{s.LOOK_BACK}])))"
    )
    nameless = active.replace('"active"', '"active",model_name="",pod!=""')
    lack = {
        "some_of_its_thresholds": (
            f"(({info} unless on ({s.TARGET}) ({there} == {len(_OF_TARGETS)}))\n"
            f"  or ({info} unless on ({s.MODEL}) ({of_models})))"
        ),
        # As of an exporter that is older than the rules.
        "the_state_of_its_engines": f"({info} unless on ({s.TARGET}) {judged})",
        "its_info_series": f"({active} unless on ({s.TARGET}) {info})",
        "the_name_of_the_model": f"({nameless} and on ({s.POD}) {_NAMED})",
        "what_the_rules_record_of_its_model": f"({_unrecorded(active)})",
        "its_labels,_which_Prometheus_has_renamed_with_the_prefix_exported": (
            f"({_RENAMED})"
        ),
    }
    values = s.labelled("lack", **lack)
    return Record(
        _LACK,
        f"group by ({s.TARGET}, lack) (\n{values}\n)",
        why="What alerts need of an exporter that is scraped, and Prometheus has not.",
    )


def _unrecorded(active: str) -> str:
    """Return engines whose gauges say what their model's records must say as well.

    A record is silently empty where its two sides have other labels, and all rules are
    fine: then nothing pages.
    """
    judged = f"({s.SPEEDUP} and {s.JUDGED_DRAFTS})"
    # A speedup outlives the tokens that it was judged by, which weigh it in its model.
    generates = "engine:vllm_specdec_generation_tokens:rate5m > 0"
    return (
        f"({active} == 1 unless on ({s.MODEL}) model:vllm_specdec_drafts:rate5m)\n"
        f"  or ({s.ENGINE_SPEEDUP} and on ({s.ENGINE}) {generates} "
        f"unless on ({s.MODEL}) {judged})"
    )


def _rules_blind() -> Alert:
    return Alert(
        name="RulesBlind",
        subject="monitoring",
        level="instance",
        expr=_LACK,
        hold="5m",
        keep="5m",
        summary="Prometheus lacks series of an exporter that alerts need.",
        description=(
            f"The exporter at {{{{ $labels.instance }}}}{t.IN} is scraped, but "
            "Prometheus lacks {{ $labels.lack }}. Alerts that need them cannot "
            "fire, or name no model."
        ),
        action=(
            "Set honor_labels, let them through metric relabelling, or bring exporter "
            "and rules to the same version."
        ),
        why=(
            "Thresholds come from the exporter. Those of single requests are read by "
            "exporter, the others by model. Recorded are the drafts of an engine that "
            "drafts, and the speedup of a model with a judged engine."
        ),
    )


def _reload_failed() -> Alert:
    return Alert(
        name="ConfigReloadFailed",
        subject="monitoring",
        level="instance",
        expr=s.plain(
            f"last_over_time(vllm_specdec_config_last_reload_successful[{s.LOOK_BACK}])"
        )
        + " == 0",
        hold="10m",
        keep="5m",
        summary="An exporter cannot use its newest configuration.",
        description=(
            f"The exporter at {t.PLACE}{t.IN} could not load its newest configuration "
            "and continues with the previous one; a sidecar without a previous one "
            "polls nothing."
        ),
        action="Fix the error in the exporter's log, and reload; flags need a new pod.",
    )
