"""The metrics of SGLang and llama.cpp for the traffic of a simulated vLLM with one
engine.

Only what the exporter and the dashboards read of them; whole answers of these servers
are in `tests/data/upstream`.
"""

import re

_SAMPLE = re.compile(r'^vllm:(\w+)\{engine="0",?(.*?)\} (\S+)$', re.MULTILINE)
_TYPE = re.compile(r"(?m)^# TYPE vllm:(\w+) (counter|gauge|histogram)$")
_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"

#: By engine, its names by those of vLLM.
_NAMES = {
    "sglang": {
        "num_requests_running": "num_running_reqs",
        "num_requests_waiting": "num_queue_reqs",
        "kv_cache_usage_perc": "token_usage",
        "prompt_tokens_total": "prompt_tokens_total",
        "generation_tokens_total": "generation_tokens_total",
        "spec_decode_num_drafts_total": "spec_verify_calls_total",
        "num_preemptions_total": "num_retracted_requests_total",
    },
    "llamacpp": {
        "num_requests_running": "requests_processing",
        "num_requests_waiting": "requests_deferred",
        "prompt_tokens_total": "prompt_tokens_total",
        "generation_tokens_total": "tokens_predicted_total",
        "spec_decode_num_drafts_total": "spec_decode_num_drafts_total",
        "spec_decode_num_draft_tokens_total": "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total": (
            "spec_decode_num_accepted_tokens_total"
        ),
        _POSITION: _POSITION,
    },
}
_SGLANG_HISTOGRAM = re.compile(
    r"(time_to_first_token|e2e_request_latency|request_time_per_output_token)_seconds(_bucket|_count|_sum)?"
)


def written_by(engine: str, text: str) -> str:
    """Return what `engine` (`vllm`, `sglang` or `llamacpp`) would print, from vLLM's
    answer.
    """
    if engine == "vllm":
        return text
    names = _NAMES[engine]
    lines = []
    k = 0
    owner = ""

    def own(name: str) -> str:
        kept = engine == "sglang" and _SGLANG_HISTOGRAM.fullmatch(name)
        return names.get(name, name if kept else "")

    for name, kind in _TYPE.findall(text):
        if own(name):
            lines.append(f"# TYPE {engine}:{own(name)} {kind}")
    for name, labels, value in _SAMPLE.findall(text):
        if engine == "sglang":
            shown = labels
        else:
            shown = "".join(re.findall(r'position="\d+"', labels))
        k += name == _POSITION
        if own(name):
            lines.append(f"{engine}:{own(name)}{{{shown}}} {value}")
        if own(name) == "time_to_first_token_seconds_count":
            owner = shown
            requests = value
    if engine == "sglang":
        # One token of each request comes from its prefill.
        own_values = {
            "num_requests_total": requests,
            "spec_num_steps": k,
            "spec_num_draft_tokens": k + 1,
        }
        for name, value in own_values.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines.append(f"# TYPE sglang:{name} {kind}")
            lines.append(f"sglang:{name}{{{owner}}} {value}")
    return "\n".join(lines) + "\n"
