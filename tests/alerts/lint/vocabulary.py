"""The words that the bundle is written in: labels, subjects that page, actions."""

from __future__ import annotations

PREFIX = "VLLMSpecDecode"
#: What Prometheus attaches to a target, as far as the rules may name it.
TARGET = frozenset({"cluster", "namespace", "job", "instance", "pod"})
#: Subjects that may page: monitoring is lost, or users are hurt.
PAGING = ("monitoring", "payoff", "errors")
#: What a decision may ask for, and whether a K belongs to it.
ACTIONS = {
    "disable": True,
    "enable": True,
    "increase_k": True,
    "decrease_k": True,
    "switch_method": False,
    "measure": False,
}
#: Labels by which rules of one name may differ.
DISTINGUISHING = frozenset({"severity", "level", "reason", "against", "action"})
#: Recorded for what is federated of each pod, for panels and for the queries of runbooks.
DASHBOARDS = frozenset(
    {
        "instance:vllm_specdec_drafts:rate5m",
        "instance:vllm_specdec_acceptance:ratio_rate5m",
        "instance:vllm_specdec_mean_acceptance_length:ratio_rate5m",
        "model:vllm_specdec_coverage:ratio_rate5m",
        "model:vllm_specdec_drafts:rate1d",
        "model:vllm_specdec_accepted_tokens:rate1d",
    }
)
