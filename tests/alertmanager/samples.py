"""Alerts as Prometheus would send them: labels of the rules, annotations as their templates come out."""

from __future__ import annotations

from typing import Any

from alertmanager.bundle import alert, rule

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
RUNBOOKS = "https://example.com/vllm-specdec-exporter/runbooks/VLLMSpecDecode"
GRAFANA = "https://grafana.example.com/d/vllm-specdec-"

Alert = dict[str, Any]

#: A model that tries to be more than a name, in every format.
HOSTILE = "<b>bold</b> & \"quoted\" 'one' `code`\n<!channel> @channel <https://evil.example|here> +x%20|y"


def sample(
    name: str,
    dashboard: str,
    description: str = "",
    *figures: str,
    severity: str = "",
    reason: str = "",
    **where: str,
) -> Alert:
    """An alert of the bundle with its annotations; the summary and action are the rule's own."""
    labels = {"severity": severity, "reason": reason}
    found = rule(name, **{label: value for label, value in labels.items() if value})
    own = {key: found.annotations[key] for key in ("summary", "action") if "{{" not in found.annotations[key]}
    page = f"{GRAFANA}{dashboard}?from=now-6h&var-namespace=chat&var-model_name=llama"
    links = {"runbook_url": f"{RUNBOOKS}{name}.md", "dashboard_url": page}
    texts = dict(zip(("value", "threshold", "sample", "context"), figures, strict=False))
    if description:
        texts["description"] = description
    return {
        **alert(found, **{"cluster": "eu-1", "model_name": MODEL, **where}),
        "annotations": {**own, **links, **texts},
        "generatorURL": "https://prometheus.example.com/graph?g0.expr=up",
    }


def harmful(model: str = MODEL) -> Alert:
    """Harm that pages."""
    return sample(
        "Harmful",
        "payoff",
        f"{model} in chat generates at 0.62x the speed that it would have without speculation.",
        "0.62x",
        "0.90x",
        "18k drafts in 5m",
        "31.4% of the draft tokens are accepted, mean acceptance length 1.94, 41.20 requests run per engine",
        severity="critical",
        model_name=model,
    )


def requests_fail() -> Alert:
    """Errors that page."""
    said = f"7.5% of the requests of {MODEL} in chat ended in an error within 5 minutes."
    return sample("RequestsFail", "load", said, "7.5% of the requests", "5%", "640 requests in 5m")


def squeezed() -> Alert:
    """A ticket on a model."""
    said = (
        f"The KV cache of {MODEL} in chat is 97.1% used, and vLLM preempts requests. "
        "A draft model shrinks the KV cache by its own size."
    )
    return sample("KVCacheSqueezed", "load", said, "97.1% of the KV cache", "90%", "108k drafts in 30m")


def outlier(number: int) -> Alert:
    """A ticket on one of many engines."""
    engine, pod = number % 8, number // 8
    return sample(
        "EngineOutlier",
        "acceptance",
        f"{MODEL}, engine {engine} at vllm-{pod} has 0.8{number % 10} tokens accepted per draft over the "
        "last hour, far fewer than the model's other engines.",
        f"0.8{number % 10} accepted per draft",
        "20% below its peers",
        "1.2M drafts in 1h of the model",
        engine=str(engine),
        pod=f"vllm-{pod}",
        instance=f"10.0.0.{pod}:9850",
    )


def exporter_down() -> Alert:
    """Lost monitoring: about a namespace, without a model."""
    said = (
        "None of the exporters of job vllm-specdec-exporter in chat has answered Prometheus for "
        "5 minutes: nobody watches whether speculation hurts users there."
    )
    return sample("ExporterDown", "exporter", said, severity="critical")


def exporter_absent() -> Alert:
    """Lost monitoring without any label of a place."""
    said = (
        "No scrape target whose job is called vllm-specdec-exporter has been there for an hour. "
        "Either every server was scaled to nothing, or the scrape job is gone or has another name."
    )
    return sample("ExporterAbsent", "exporter", said, severity="warning", cluster="")


def by_schedule(number: int) -> Alert:
    """A hint."""
    said = (
        f"{MODEL}, engine {number} at vllm-0 drafts nothing, because its schedule has K = 0 for the "
        "number of requests that run now."
    )
    return sample("DisabledBySchedule", "cost", said, engine=str(number))


def disable(reason: str, value: str, threshold: str) -> Alert:
    """A decision."""
    said = f"The measure of {MODEL} in chat has been below the threshold for 15 minutes and is {value}."
    figures = (value, threshold, "18k drafts in 5m", "speedup 0.81x")
    return sample("Disable", "payoff", said, *figures, reason=reason)


def watchdog() -> Alert:
    """The alert that always fires."""
    return sample("Watchdog", "exporter", rule("Watchdog").annotations["description"])


def hostile(severity: str) -> Alert:
    """An alert in which everything that comes from outside is hostile; both severities have one."""
    found = (
        harmful(HOSTILE)
        if severity == "critical"
        else sample("SpeedupRegressed", "payoff", model_name=HOSTILE)
    )
    found["labels"] |= {"namespace": "<i>&amp;\n*x*", "cluster": "<@U123>"}
    found["annotations"] |= {
        "description": f"{HOSTILE} is slow\r\nBcc: everybody@example.com",
        "value": "<script>alert(1)</script>",
        "threshold": "{{ .Labels }} </td></table>",
        "sample": "<!here> & more",
        "context": "a\n\n.\n\nb",
        "runbook_url": 'javascript:alert("1")',
        "dashboard_url": "https://grafana.example.com/d/x?a=<b>&c=|d e\"'",
    }
    return found


def bare() -> Alert:
    """An alert without any annotation and with hardly a label."""
    return {"labels": {"alertname": "VLLMSpecDecodeOwn"}}
