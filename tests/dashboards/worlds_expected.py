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
    "harmful", "exporter-down", "bypassed", "two-clusters", "saturated", "day", "requests",
    "variable-drafts",
)  # fmt: skip
#: The exporter sees requests, and their answers tell of speculation, too.
OBSERVED = _in("requests", "variable-drafts")
RECORDED = _in("requests")

#: In which worlds panels show something, by dashboard.
_TITLES: tuple[tuple[str, frozenset[str], tuple[str, ...]], ...] = (
    ("acceptance", DRAFTING, (
        "Acceptance quality", "Acceptance rate", "Acceptance length", "First and last position",
        "Do drafts vary?", "Acceptance by position now", "What would a smaller K have given?",
    )),
    ("acceptance", GENERATING | _in("idle"), ("Drafts counted",)),
    ("acceptance", DRAFTED, (
        "Which positions are accepted?", "Is a position accepted once the one before is?",
        "Decline along the draft", "Draft length against K", "Accepted tokens per draft",
        "Quantiles of accepted tokens per draft", "All or nothing", "Is acceptance as usual?",
    )),
    ("compare", DRAFTING, (
        "Speedup, A and B", "Mean acceptance length, A and B", "Acceptance rate, A and B",
        "Wasted verification, A and B", "Position by position, A and B",
    )),
    ("compare", GENERATING | _in("warming-up"), ("Tokens per second of a request",)),
    ("compare", DRAFTING | _in("bypassed"), ("Coverage, A and B",)),
    ("compare", POLLED, ("K, A and B",)),
    ("compare", GENERATING | _in("idle"), ("Drafts behind each side",)),
    ("compare", DRAFTED, (
        "Speedup over time, A and B", "Mean acceptance length over time", "Acceptance rate over time",
    )),
    ("compare", EVERYWHERE, ("Tokens per second of a request, A and B", "Requests running, A and B")),
    ("cost", EVERYWHERE, (
        "Does speculation pay?", "What to change?", "At which load does it pay?",
    )),
    ("cost", DRAFTING, ("Speedup", "Acceptance length")),
    ("cost", _in("measured"), ("Return on speculation",)),
    ("cost", DRAFTING - _in("variable-drafts"), ("What would each K give?",)),
    ("cost", DRAFTED, (
        "K in use and K advised", "Acceptance against break-even", "Accepted and rejected draft tokens",
        "Estimated and measured speedup",
    )),
    ("cost", DRAFTING - _in("variable-drafts", "requests"), ("Which K at which load?",)),
    ("cost", POLLED, ("Which methods and cost profiles?",)),
    ("exporter", EVERYWHERE, (
        "Exporters that answer", "Failed polls, 1 h", "Alert rules", "Which targets were up?",
        "How long does a scrape take?", "How many series?", "Restarts of engines", "Contradictory answers",
        "How full are the windows?", "Memory of exporters", "CPU of exporters",
        "Which exporter, which server?",
    )),
    ("exporter", SCRAPED, (
        "Servers that answer", "Oldest data", "Configuration", "How long does a poll take?",
        "Which versions run?", "Thresholds in force",
    )),
    ("exporter", _in("warming-up", "server-down", "k-change", "rollout"), ("Why do polls fail?",)),
    ("load", EVERYWHERE, (
        "Does speculation pay?", "Time per output token", "Time to first token", "End-to-end latency",
        "Is it load or drafts?", "Requests running and waiting",
        "Time in the queue", "Tokens per second, prompt and answer", "KV cache use", "Prefix cache hits",
        "Preemptions", "How do requests end?", "Share of requests that fail",
    )),
    ("load", DRAFTING, ("Speedup",)),
    ("load", POLLED, ("Running and waiting", "Fullest KV cache")),
    ("load", GENERATING | _in("idle", "warming-up"), ("Tokens per second",)),
    ("load", _in("measured"), ("Latency against the baseline",)),
    ("payoff", EVERYWHERE, ("Does speculation pay?", "What to change?", "Alerts", "Verdict over time")),
    ("payoff", DRAFTING, (
        "Speedup", "Rests on", "Acceptance quality", "Acceptance rate", "Acceptance length",
        "Wasted verification",
    )),
    ("payoff", EVERYWHERE - _in("off"), ("Budget left",)),
    ("payoff", POLLED, ("What do engines do?", "Which model loses?", "Which pod or engine loses?")),
    ("payoff", DRAFTING | _in("bypassed"), ("Coverage",)),
    ("payoff", DRAFTED, (
        "How fast, and where is break-even?", "Mean acceptance length against break-even",
        "Acceptance rate by model", "Coverage and waste",
    )),
    ("payoff", ALERTED, ("Which alerts fire?",)),
    ("requests", EVERYWHERE, (
        "Data by request?", "Is all traffic observed?", "Length of answers", "Length of prompts",
        "Requests by how they end",
    )),
    ("requests", RECORDED, (
        "Is the workload mixed?", "How much loses?", "P10 of acceptance", "Which requests lose?",
        "Acceptance by temperature", "Acceptance by type of request", "Acceptance of requests",
        "Quantiles of acceptance by request", "Which type loses, and since when?",
        "Which temperature loses, and since when?", "Acceptance where a position was drafted",
        "How far do drafts reach?", "Acceptance where a position was drafted, over time",
        "Accepted tokens per draft by request", "Whose requests lose?",
        "Which tenant loses, and since when?",
    )),
    ("requests", OBSERVED, (
        "Requests with data", "Answers with a record", "Requests by outcome",
        "Tokens by outcome", "What does the exporter judge?",
        "Time per output token by type", "Time to first token by type", "Requests by temperature",
        "Requests by type", "Which records do answers have?", "Why is a request not observed?",
        "Requests and connections of the tap", "Why do connections to vLLM fail?",
    )),
    ("requests", DRAFTED - _in("idle", "bypassed"), ("Acceptance of all drafts",)),
)  # fmt: skip
EXPECTED = {f"{uid}: {title}": worlds for uid, worlds, titles in _TITLES for title in titles}
