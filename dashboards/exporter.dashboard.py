"""Exporter health: can the other dashboards be trusted?"""

from __future__ import annotations

from grafana_panels import annotations, links, variables
from grafana_panels.alerting import WATCHDOG
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import colored, words
from grafana_panels.palette import BLUE, GREY, ORANGE, SKY, VERMILION
from grafana_panels.panel import Panel, Stat, StateTimeline, TimeSeries
from grafana_panels.promql import INTERVAL, KNOWN, exporters, gauge, total
from grafana_panels.table import Column, joined
from grafana_panels.target import now, over_time
from grafana_panels.tiles import A_MINUTE
from grafana_panels.variables import SERVER, TARGET
from grafana_panels.verdict import VERDICTS

WHICH = "cluster, namespace, pod, instance, target"
LEGEND = "{{cluster}} {{namespace}} {{pod}} {{instance}} {{target}}"
EXPORTERS = exporters()


def target(name: str) -> str:
    """Return a series of the exporter itself."""
    return gauge(name, TARGET)


def server(name: str) -> str:
    """Return a series of a server that is polled."""
    return gauge(name, SERVER)


#: Cores that each exporter uses.
CPU = f"rate(process_cpu_seconds_total{{{TARGET}}}[{INTERVAL}]) and {KNOWN}"


def own(name: str) -> str:
    """Return what Prometheus or Python tells of the exporters, and of nothing else that it scrapes."""
    return f"{name}{{{TARGET}}} and {KNOWN}"


#: The servers whose polls took longest at the end of the range: the same ones all along.
SLOWEST = (
    f"{total(server('poll_duration_seconds'), WHICH, 'max')} and on ({WHICH}) "
    f"topk(10, {total(server('poll_duration_seconds') + ' @ end()', WHICH, 'max')})"
)


def rate_of(name: str, by: str) -> str:
    """Return the rate of a counter of the exporter."""
    return total(f"rate({server(name)}[{INTERVAL}])", by)


#: 2 for a server that answers, 1 for one that does not, 0 for an exporter that does not.
ANSWERS = f"1 + {total(server('up'), WHICH, 'min')}\nor ({total(EXPORTERS, WHICH, 'max')} == 0)"
#: What can be the matter with a server, from good to bad.
STATES = words({2: ("▲ answering", BLUE), 1: VERDICTS[1], 0: VERDICTS[0]})

top: list[Panel] = [
    Stat(
        title="Exporters that answer",
        description=(
            "Exporters that answer, and all scrape targets, from `up`. Fewer than all: find the others in the "
            "table below; their engines are missing on all dashboards."
        ),
        targets=[now(f"sum({EXPORTERS})", "answer"), now(f"count({EXPORTERS})", "of")],
        text="value_and_name",
        unit="short",
        decimals=0,
        no_value="none found",
    ),
    Stat(
        title="Servers that answer",
        description=(
            "vLLM servers that the exporters can read, and all of them, from `vllm_specdec_up`. Fewer than all: a "
            "model loads, or see *Why do polls fail?*"
        ),
        targets=[now(f"sum({server('up')})", "answer"), now(f"count({server('up')})", "of")],
        text="value_and_name",
        unit="short",
        decimals=0,
        no_value="none found",
    ),
    Stat(
        title="Oldest data",
        description=(
            "Longest time since the last successful poll of a server, from "
            "`vllm_specdec_last_success_timestamp_seconds`. If it exceeds a few poll intervals, the server is "
            "missing on the dashboards."
        ),
        targets=[now(f"max(time() - {server('last_success_timestamp_seconds')})", "age")],
        unit="s",
        decimals=0,
        least=0,
        no_value="not known",
    ),
    Stat(
        title="Failed polls, 1 h",
        description=(
            "Failed polls within an hour, from `vllm_specdec_poll_errors_total`. A few with reason refused mean a "
            "restart; otherwise see *Why do polls fail?* and the exporter's log."
        ),
        targets=[now(f"sum(increase({server('poll_errors_total')}[1h]))", "failed")],
        unit="short",
        decimals=0,
        no_value="none",
    ),
    Stat(
        title="Configuration",
        description=(
            "Whether every exporter uses its newest configuration, from "
            "`vllm_specdec_config_last_reload_successful`. If not: run vllm-specdec-exporter --config.check on "
            "the file, fix it, and reload."
        ),
        targets=[now(f"min({target('config_last_reload_successful')})", "configuration")],
        mappings=words({1: ("▲ in force", BLUE), 0: ("▼ OLD ONE", VERMILION)}),
        background=True,
        no_value="not known",
    ),
    Stat(
        title="Alert rules",
        description=(
            "Whether the alert rules are loaded, from the watchdog alert (`ALERTS`). Without them there are no "
            "pages, and panels with alerts, the usual band and the objective are empty: load alerts/rules."
        ),
        targets=[now(f"max({WATCHDOG})", "rules")],
        mappings=words({1: ("▲ loaded", BLUE)}),
        background=True,
        no_value="NOT LOADED",
    ),
]

polls: list[Panel] = [
    StateTimeline(
        title="Which targets were up?",
        description=(
            "For each exporter and server: answering, vLLM down (`vllm_specdec_up` is 0), or the exporter itself "
            "down (`up` is 0). If other dashboards have gaps at the same time, this is the cause."
        ),
        targets=[over_time(ANSWERS, LEGEND)],
        mappings=STATES,
        no_value="no exporter found",
    ),
    TimeSeries(
        title="Why do polls fail?",
        description=(
            "Failed polls per minute by reason, from `vllm_specdec_poll_errors_total`. refused: vLLM loads or is "
            "down; timeout: it is overloaded; malformed or unrecognized: an unsupported version; tls, "
            "credentials: its configuration. The reasons are listed in docs/reference/metrics.md."
        ),
        targets=[over_time(f"60 * ({rate_of('poll_errors_total', 'reason')} > 0)", "{{reason}}")],
        **A_MINUTE,
        no_value="none",
    ),
    TimeSeries(
        title="How long does a poll take?",
        description=(
            "Duration of the last poll of each server, the slowest ten, from `vllm_specdec_poll_duration_seconds`. Near --poll.timeout polls begin to fail: "
            "vLLM's API server is overloaded."
        ),
        targets=[over_time(SLOWEST, LEGEND)],
        unit="s",
        least=0,
        no_value="no poll yet",
        width=8,
    ),
    TimeSeries(
        title="How long does a scrape take?",
        description=(
            "Duration of scrapes of the exporters, slowest and mean, from `scrape_duration_seconds`. A scrape "
            "does not wait for vLLM: if it grows, the exporter lacks CPU."
        ),
        targets=[
            over_time(f"max({own('scrape_duration_seconds')})", "slowest"),
            over_time(
                f"sum({own('scrape_duration_seconds')}) / count({own('scrape_duration_seconds')})", "mean"
            ),
        ],
        unit="s",
        least=0,
        overrides=colored({"slowest": BLUE, "mean": SKY}),
        no_value="not scraped",
        width=8,
    ),
    TimeSeries(
        title="How many series?",
        description=(
            "Samples per scrape of the exporters, largest and sum, from `scrape_samples_scraped`. It depends on "
            "engines, K and windows, not on traffic; if it grows otherwise, report a bug."
        ),
        targets=[
            over_time(f"max({own('scrape_samples_scraped')})", "largest"),
            over_time(f"sum({own('scrape_samples_scraped')})", "all"),
        ],
        unit="short",
        decimals=0,
        least=0,
        overrides=colored({"largest": BLUE, "all": GREY}),
        no_value="not scraped",
        width=8,
    ),
]

data: list[Panel] = [
    TimeSeries(
        title="Restarts of engines",
        description=(
            "Counter resets of engines within an hour, from `vllm_specdec_engine_resets_total`. Each is a restart "
            "of vLLM, followed by a short gap while windows fill. Many: vLLM crashes, see its log."
        ),
        targets=[
            over_time(f"sum(increase({gauge('engine_resets_total')}[1h]))", "restarts"),
        ],
        unit="short",
        decimals=0,
        least=0,
        soft_most=1,
        overrides=colored({"restarts": ORANGE}),
        no_value="none",
        width=8,
    ),
    TimeSeries(
        title="Contradictory answers",
        description=(
            "Inconsistent samples per minute, from `vllm_specdec_inconsistent_samples_total`. A few are normal: "
            "vLLM was read between two counter updates, and ratios were clamped. If they continue: a proxy "
            "between vLLM and the exporter changes numbers."
        ),
        targets=[
            over_time(f"60 * sum(rate({gauge('inconsistent_samples_total')}[{INTERVAL}]))", "contradictory"),
        ],
        unit="suffix:/min",
        decimals=1,
        least=0,
        soft_most=1,
        overrides=colored({"contradictory": ORANGE}),
        no_value="none",
        width=8,
    ),
    TimeSeries(
        title="How full are the windows?",
        description=(
            "Real span of each of the exporter's windows, the shortest of all engines, from "
            "`vllm_specdec_window_span_seconds`. If shorter than its name: the engine has just started, or polls "
            "are missing, and ratios have a smaller sample."
        ),
        targets=[over_time(total(gauge("window_span_seconds"), "window", "min"), "{{window}}")],
        unit="s",
        least=0,
        no_value="no windows yet",
        width=8,
    ),
    TimeSeries(
        title="Memory of exporters",
        description=(
            "Resident memory of the exporters, largest and sum, from `process_resident_memory_bytes`. It does not "
            "depend on the number of requests; if it grows over days, report a bug."
        ),
        targets=[
            over_time(f"max({own('process_resident_memory_bytes')})", "largest"),
            over_time(f"sum({own('process_resident_memory_bytes')})", "all"),
        ],
        unit="bytes",
        least=0,
        overrides=colored({"largest": BLUE, "all": GREY}),
        no_value="not scraped",
    ),
    TimeSeries(
        title="CPU of exporters",
        description=(
            "Cores used by the exporters, highest and sum, from `process_cpu_seconds_total`. A few thousandths "
            "each are normal; if more: raise --poll.interval, or look for a scraper with too short an interval."
        ),
        targets=[
            over_time(f"max({CPU})", "busiest"),
            over_time(f"sum({CPU})", "all"),
        ],
        unit="short",
        decimals=4,
        least=0,
        overrides=colored({"busiest": BLUE, "all": GREY}),
        no_value="not scraped",
    ),
]

tables: list[Panel] = [
    joined(
        "Which exporter, which server?",
        (
            "Each exporter with its version and the servers that it polls, from `vllm_specdec_up`, "
            "`vllm_specdec_build_info` and others. If versions differ: finish the rollout, because rules and "
            "dashboards match the newest."
        ),
        {
            "cluster": "Cluster",
            "namespace": "Namespace",
            "pod": "Pod",
            "instance": "Instance",
            "target": "Server",
        },
        [
            Column(
                "State",
                ANSWERS,
                mappings=STATES,
                filled=True,
                width=170,
            ),
            Column(
                "Age of data",
                f"time() - {total(server('last_success_timestamp_seconds'), WHICH, 'max')}",
                "dtdurations",
                width=160,
            ),
            Column("Poll", total(server("poll_duration_seconds"), WHICH, "max"), "s", width=100),
            Column(
                "Failed polls, 1 h",
                f"sum by ({WHICH}) (increase({server('poll_errors_total')}[1h]))",
                decimals=0,
                width=140,
            ),
        ],
        no_value="-",
        sort=("State", False),
    ),
    joined(
        "Which versions run?",
        (
            "Exporters by version and Python, from `vllm_specdec_build_info`. If there is more than one: finish "
            "the rollout, because rules and dashboards match the newest."
        ),
        {"version": "Exporter", "python_version": "Python"},
        [Column("Exporters", f"count by (version, python_version) ({target('build_info')})", decimals=0)],
        no_value="no exporter found",
        width=10,
    ),
    joined(
        "Thresholds in force",
        (
            "All thresholds in force, from `vllm_specdec_threshold`: lowest and highest if exporters differ. "
            "Change one with --threshold NAME=NUMBER; see docs/reference/metrics.md for the meanings."
        ),
        {"name": "Threshold"},
        [
            Column("Lowest", f"min by (name) ({target('threshold')})", "none", width=110),
            Column("Highest", f"max by (name) ({target('threshold')})", "none", width=110),
        ],
        no_value="no exporter found",
        sort=("Threshold", False),
        width=14,
    ),
]

dashboard = Dashboard(
    uid="vllm-specdec-exporter",
    title="Exporter health",
    description="Are all servers polled, and can the other dashboards be trusted?",
    sections=[
        ("", top),
        ("Are all servers polled?", polls),
        ("Can the numbers be trusted?", data),
        ("Which exporters are these?", tables),
    ],
    variables=variables.usual(windowed=False),
    marks=annotations.usual(),
    links=links.to_all(),
)
