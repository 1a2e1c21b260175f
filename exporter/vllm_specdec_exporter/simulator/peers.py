"""What LMDeploy and llama.cpp publish that vLLM does not: lifetime means and the like."""

from .measurements import Measurements
from .speculation import DraftTotals


def show_lmdeploy(counts: Measurements, totals: DraftTotals) -> None:
    """Set LMDeploy's own values, all of them means or totals since the start."""
    if totals.draft_tokens:
        counts.set("spec_decode_mean_accept_rate", totals.accepted_tokens / totals.draft_tokens)
        counts.set("spec_decode_mean_accept_length", 1 + totals.accepted_tokens / totals.drafts)
    if totals.drafts:
        for position, accepted in enumerate(totals.accepted_per_position):
            counts.set("spec_decode_per_position_accept_rate", accepted / totals.drafts, str(position))
    queries = counts.get("prefix_cache_queries")
    if queries:
        counts.set("prefix_cache_hit_rate", counts.get("prefix_cache_hits") / queries)
    counts.set("lmdeploy_request_success", counts.get("http_requests"), "ResponseType.FINISH")


def show_llamacpp(counts: Measurements, totals: DraftTotals) -> None:
    """Set llama.cpp's values, which move only when a request is complete."""

    def show(name: str, value: float, variant: str = "") -> None:
        counts.set(f"llamacpp_{name}", value, variant)

    computed = counts.get("prompt_tokens_by_source", "local_compute")
    generated = counts.get("generation_tokens")
    prefill, decode = counts.get("prefill_seconds"), counts.get("decode_seconds")
    steps = counts.histogram("iteration_tokens_total").count
    show("prompt_tokens", computed)
    show("prompt_tokens_cached", counts.get("prompt_tokens_cached"))
    show("prompt_seconds", prefill)
    show("tokens_predicted", generated)
    show("tokens_predicted_seconds", decode)
    show("n_decode", steps)
    show("n_tokens_max", counts.get("longest"))
    show("prompt_tokens_seconds", computed / prefill if prefill else 0.0)
    show("predicted_tokens_seconds", generated / decode if decode else 0.0)
    show("n_busy_slots_per_decode", counts.get("busy_slots") / steps if steps else 0.0)
    show("spec_decode_num_drafts", totals.drafts)
    show("spec_decode_num_draft_tokens", totals.draft_tokens)
    show("spec_decode_num_accepted_tokens", totals.accepted_tokens)
    if totals.drafts:
        for position, accepted in enumerate(totals.accepted_per_position):
            show("spec_decode_num_accepted_tokens_per_pos", accepted, str(position))
