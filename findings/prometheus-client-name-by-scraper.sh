#!/usr/bin/env bash
# The name of a metric with a colon depends on who scrapes it.
#
# Version:   prometheus-client 0.26.0, make_asgi_app, as SGLang mounts it.
# Expected:  One server exposes one name. A colon is valid in the text format and in OpenMetrics.
# Behaviour: A client that accepts OpenMetrics without "escaping=allow-utf-8", as Prometheus 2
#            and Prometheus 3 with legacy names do, gets "_" for ":"; Prometheus 3 as delivered
#            and a client of the text format get the colon.
# Seen:      text sglang:token_usage, OpenMetrics 1.0.0 sglang_token_usage,
#            with escaping=allow-utf-8 sglang:token_usage
# Matters:   Rules and boards for SGLang that hold in one Prometheus read nothing in another, for
#            the same server. What curl shows is not what Prometheus stores.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

python_packages prometheus-client==0.26.0
cat >"$work/names.py" <<'END'
"""Prints the name of one gauge for three headers."""

import asyncio

from prometheus_client import CollectorRegistry, Gauge, make_asgi_app

registry = CollectorRegistry()
Gauge("sglang:token_usage", "usage", registry=registry).set(0.5)
app = make_asgi_app(registry)


def name(accept):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "headers": [(b"accept", accept.encode())],
    }
    asyncio.run(app(scope, receive, send))
    lines = sent[1]["body"].decode().splitlines()
    return next(line.split()[0] for line in lines if not line.startswith("#"))


print("text:", name("text/plain;version=0.0.4"))
print("OpenMetrics:", name("application/openmetrics-text;version=1.0.0"))
print("UTF-8:", name("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8"))
END
seen "$("$work/venv/bin/python" "$work/names.py")" <<'END'
text: sglang:token_usage
OpenMetrics: sglang_token_usage
UTF-8: sglang:token_usage
END
