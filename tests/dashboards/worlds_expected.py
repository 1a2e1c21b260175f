"""Which panel shows something in which world: a table for people to judge, and for tests to hold to.

A tile tells of now: without drafts there is no acceptance. A line tells of the last hours: it is there in
every world with a past. Thresholds do not count.
"""

from __future__ import annotations

from dashboards.worlds_catalogue import WORLDS


def _in(*names: str) -> frozenset[str]:
    unknown = set(names) - set(WORLDS)
    assert not unknown, f"no such world: {unknown}"
    return frozenset(names)


EVERYWHERE = frozenset(WORLDS)
#: Prometheus reaches the exporter now.
SCRAPED = EVERYWHERE - _in("exporter-down")
#: The exporter reaches the server, too.
POLLED = SCRAPED - _in("server-down")
#: The server generates tokens now.
GENERATING = POLLED - _in("idle", "warming-up")
#: It drafts now, and has for long enough to tell of it.
DRAFTING = GENERATING - _in("bypassed", "off")
#: It has drafted within the last hours.
DRAFTED = EVERYWHERE - _in("off")
#: Alerts fire now.
ALERTED = _in(
    "harmful", "exporter-down", "bypassed", "two-clusters", "measured", "saturated", "day", "requests",
    "variable-drafts",
)  # fmt: skip
#: The exporter sees requests, and their answers tell of speculation, too.
OBSERVED = _in("requests", "variable-drafts")
RECORDED = _in("requests")

EXPECTED: dict[str, frozenset[str]] = {
    "acceptance: Acceptance quality": DRAFTING,
    "acceptance: Acceptance rate": DRAFTING,
    "acceptance: Acceptance length": DRAFTING,
    "acceptance: First and last position": DRAFTING,
    "acceptance: Do drafts vary?": DRAFTING,
    "acceptance: Drafts counted": GENERATING | _in("idle"),
    "acceptance: Which positions are accepted?": DRAFTED,
    "acceptance: Is a position accepted once the one before is?": DRAFTED,
    "acceptance: Acceptance by position now": DRAFTING,
    "acceptance: Decline along the draft": DRAFTED,
    "acceptance: Draft length against K": DRAFTED,
    "acceptance: Accepted tokens per draft": DRAFTED,
    "acceptance: Quantiles of accepted tokens per draft": DRAFTED,
    "acceptance: All or nothing": DRAFTED,
    "acceptance: What would a smaller K have given?": DRAFTING,
    "acceptance: Is acceptance as usual?": DRAFTED,
    "compare: Speedup, A and B": DRAFTING,
    "compare: Tokens per second of a request": GENERATING | _in("warming-up"),
    "compare: Mean acceptance length, A and B": DRAFTING,
    "compare: Acceptance rate, A and B": DRAFTING,
    "compare: Coverage, A and B": DRAFTING | _in("bypassed"),
    "compare: Wasted verification, A and B": DRAFTING,
    "compare: K, A and B": POLLED,
    "compare: Drafts behind each side": GENERATING | _in("idle"),
    "compare: Speedup over time, A and B": DRAFTED,
    "compare: Tokens per second of a request, A and B": EVERYWHERE,
    "compare: Mean acceptance length over time": DRAFTED,
    "compare: Acceptance rate over time": DRAFTED,
    "compare: Position by position, A and B": DRAFTING,
    "compare: Requests running, A and B": EVERYWHERE,
    "cost: Does speculation pay?": EVERYWHERE,
    "cost: What to change?": EVERYWHERE,
    "cost: Speedup": DRAFTING,
    "cost: Acceptance length": DRAFTING,
    "cost: Return on speculation": _in("measured"),
    "cost: What would each K give?": DRAFTING - _in("variable-drafts"),
    "cost: K in use and K advised": DRAFTED,
    "cost: Which K at which load?": DRAFTING - _in("variable-drafts", "requests"),
    "cost: At which load does it pay?": EVERYWHERE,
    "cost: Speedup against running requests": EVERYWHERE,
    "cost: Acceptance against break-even": DRAFTED,
    "cost: Drafted tokens by their fate": DRAFTED,
    "cost: Verified tokens per emitted token": DRAFTED,
    "cost: Estimated and measured speedup": DRAFTED,
    "cost: What are these figures made with?": POLLED,
    "exporter: Exporters that answer": EVERYWHERE,
    "exporter: Servers that answer": SCRAPED,
    "exporter: Oldest data": SCRAPED,
    "exporter: Failed polls, 1 h": EVERYWHERE,
    "exporter: Configuration": SCRAPED,
    "exporter: Alert rules": EVERYWHERE,
    "exporter: Who answered when?": EVERYWHERE,
    "exporter: Why do polls fail?": _in("warming-up", "server-down", "k-change", "rollout"),
    "exporter: How long does a poll take?": SCRAPED,
    "exporter: How long does a scrape take?": EVERYWHERE,
    "exporter: How many series?": EVERYWHERE,
    "exporter: Restarts of engines": EVERYWHERE,
    "exporter: Contradictory answers": EVERYWHERE,
    "exporter: How full are the windows?": EVERYWHERE,
    "exporter: Memory of exporters": EVERYWHERE,
    "exporter: CPU of exporters": EVERYWHERE,
    "exporter: Which exporter, which server?": EVERYWHERE,
    "exporter: Which versions run?": SCRAPED,
    "exporter: Thresholds in force": SCRAPED,
    "load: Does speculation pay?": EVERYWHERE,
    "load: Speedup": DRAFTING,
    "load: Running and waiting": POLLED,
    "load: Tokens per second": GENERATING | _in("idle", "warming-up"),
    "load: Fullest KV cache": POLLED,
    "load: Time per output token": EVERYWHERE,
    "load: Time to first token": EVERYWHERE,
    "load: End-to-end latency": EVERYWHERE,
    "load: How wide is latency spread?": EVERYWHERE,
    "load: Latency against the baseline": _in("measured"),
    "load: Is it load or drafts?": EVERYWHERE,
    "load: Requests running and waiting": EVERYWHERE,
    "load: Time in the queue": EVERYWHERE,
    "load: Tokens per second, prompt and answer": EVERYWHERE,
    "load: KV cache use": EVERYWHERE,
    "load: Prefix cache hits": EVERYWHERE,
    "load: Preemptions": EVERYWHERE,
    "load: How do requests end?": EVERYWHERE,
    "load: Share of requests that fail": EVERYWHERE,
    "payoff: Does speculation pay?": EVERYWHERE,
    "payoff: Speedup": DRAFTING,
    "payoff: Rests on": DRAFTING,
    "payoff: What to change?": EVERYWHERE,
    "payoff: Alerts": EVERYWHERE,
    "payoff: Budget left": EVERYWHERE - _in("off"),
    "payoff: What do engines do?": POLLED,
    "payoff: Acceptance quality": DRAFTING,
    "payoff: Acceptance rate": DRAFTING,
    "payoff: Acceptance length": DRAFTING,
    "payoff: Coverage": DRAFTING | _in("bypassed"),
    "payoff: Wasted verification": DRAFTING,
    "payoff: How fast, and where is break-even?": DRAFTED,
    "payoff: Verdict over time": EVERYWHERE,
    "payoff: Mean acceptance length against break-even": DRAFTED,
    "payoff: Acceptance rate by model": DRAFTED,
    "payoff: Coverage and waste": DRAFTED,
    "payoff: Which model loses?": POLLED,
    "payoff: Which pod or engine loses?": POLLED,
    "payoff: Which alerts fire?": ALERTED,
    "requests: Data by request?": EVERYWHERE,
    "requests: Is the workload mixed?": RECORDED,
    "requests: How much loses?": RECORDED,
    "requests: P10 of acceptance": RECORDED,
    "requests: Requests with data": OBSERVED,
    "requests: Answers with a record": OBSERVED,
    "requests: Which requests lose?": RECORDED,
    "requests: Acceptance by temperature": RECORDED,
    "requests: Acceptance by type of request": RECORDED,
    "requests: Acceptance of requests": RECORDED,
    "requests: Quantiles of acceptance by request": RECORDED,
    "requests: Requests by what speculation does to them": OBSERVED,
    "requests: Tokens by what speculation does to them": OBSERVED,
    "requests: Which type loses, and since when?": RECORDED,
    "requests: Which temperature loses, and since when?": RECORDED,
    "requests: What does the exporter judge?": OBSERVED,
    "requests: Acceptance where a position was drafted": RECORDED,
    "requests: Acceptance of all drafts": DRAFTED - _in("idle", "bypassed"),
    "requests: How far do drafts reach?": RECORDED,
    "requests: Acceptance where a position was drafted, over time": RECORDED,
    "requests: Accepted tokens per draft by request": RECORDED,
    "requests: Time per output token by type": OBSERVED,
    "requests: Time to first token by type": OBSERVED,
    "requests: Requests by temperature": OBSERVED,
    "requests: Requests by type": OBSERVED,
    "requests: Is all traffic observed?": EVERYWHERE,
    "requests: What do answers tell of speculation?": OBSERVED,
    "requests: Why is a request not observed?": OBSERVED,
    "requests: Requests and connections of the tap": OBSERVED,
    "requests: Why do connections to vLLM fail?": OBSERVED,
    "requests: Length of answers": EVERYWHERE,
    "requests: Length of prompts": EVERYWHERE,
    "requests: Requests by how they end": EVERYWHERE,
    "requests: Whose requests lose?": RECORDED,
    "requests: Which tenant loses, and since when?": RECORDED,
}

#: Targets that no world answers, with the reason.
SILENT: dict[str, str] = {}
