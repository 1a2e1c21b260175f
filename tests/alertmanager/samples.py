"""Alerts as Prometheus would send them: labels of the rules, annotations as their
templates come out.
"""

from typing import Any

from alertmanager.bundle import alert, rule

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
RUNBOOKS = "https://example.com/vllm-specdec-exporter/runbooks/VLLMSpecDecode"
GRAFANA = "https://grafana.example.com/d/vllm-specdec-"

Alert = dict[str, Any]

#: A model that tries to be more than a name, in every format.
HOSTILE = (
    "<b>bold</b> & \"quoted\" 'one' `code`\n<!channel> @channel "
    "<https://evil.example|here> +x%20|y"
)


def sample(
    name: str,
    dashboard: str,
    *texts: str,
    severity: str = "",
    reason: str = "",
    **where: str,
) -> Alert:
    """An alert of the bundle with its annotations: as `texts` its description, value,
    threshold, sample and context; the summary and action are the rule's own.
    """
    labels = {"severity": severity, "reason": reason}
    source = rule(name, **{label: value for label, value in labels.items() if value})
    kinds = ("description", "value", "threshold", "sample", "context")
    annotations = dict(zip(kinds, texts, strict=False))
    for key in ("summary", "action"):
        if "{{" not in source.annotations[key]:
            annotations[key] = source.annotations[key]
    page = f"{GRAFANA}{dashboard}?from=now-6h&var-namespace=chat&var-model_name=llama"
    links = {"runbook_url": f"{RUNBOOKS}{name}.md", "dashboard_url": page}
    return {
        **alert(source, **{"cluster": "eu-1", "model_name": MODEL, **where}),
        "annotations": annotations | links,
        "generatorURL": "https://prometheus.example.com/graph?g0.expr=up",
    }


def harmful(model: str = MODEL) -> Alert:
    """Harm that pages."""
    texts = (
        (
            f"{model} in chat generates at 0.62x the speed that it would have without "
            "speculation."
        ),
        "0.62x",
        "0.90x",
        "18k drafts in 5m",
        (
            "31.4% of the draft tokens are accepted, mean acceptance length 1.94, "
            "41.20 requests run per engine"
        ),
    )
    return sample("Harmful", "overview", *texts, severity="critical", model_name=model)


def outlier(number: int) -> Alert:
    """A ticket on one of many engines."""
    pod, engine = divmod(number, 8)
    per_draft = f"0.8{number % 10}"
    texts = (
        (
            f"{MODEL}, engine {engine} at vllm-{pod} has {per_draft} tokens accepted "
            "per draft over the last hour, far fewer than the model's other engines."
        ),
        f"{per_draft} accepted per draft",
        "20% below its peers",
        "1.2M drafts in 1h of the model",
    )
    where = {
        "engine": str(engine),
        "pod": f"vllm-{pod}",
        "instance": f"10.0.0.{pod}:9850",
    }
    return sample("EngineOutlier", "deep-dive", *texts, **where)


def hostile(severity: str) -> Alert:
    """An alert in which everything that comes from outside is hostile; both severities
    have one.
    """
    if severity == "critical":
        fired = harmful(HOSTILE)
    else:
        fired = sample("SpeedupRegressed", "overview", model_name=HOSTILE)
    fired["labels"] |= {"namespace": "<i>&amp;\n*x*", "cluster": "<@U123>"}
    fired["annotations"] |= {
        "description": f"{HOSTILE} is slow\r\nBcc: everybody@example.com",
        "value": "<script>alert(1)</script>",
        "threshold": "{{ .Labels }} </td></table>",
        "sample": "<!here> & more",
        "context": "a\n\n.\n\nb",
        "runbook_url": 'javascript:alert("1")',
        "dashboard_url": "https://grafana.example.com/d/x?a=<b>&c=|d e\"'",
    }
    return fired
