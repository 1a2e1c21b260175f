#!/usr/bin/env bash
# OpenLIT's server duration of a speculating server is its real one times the tokens of a chunk.
#
# Version:   openlit 1.45.0 with openai 2.54.0, a chat completion that streams.
#            OpenTelemetry's convention and OpenLIT's own descriptions: the time per output token
#            generated after the first, and the request's duration to its last token.
# Expected:  No request takes its server longer than its client. Two streams of as many tokens in
#            as much time have the same time per output token.
# Behaviour: gen_ai.server.time_per_output_token is the mean time between two chunks, and
#            gen_ai.server.request.duration is the time to the first one plus that time for each
#            token, where tokens come from the usage.
# Seen:      100 tokens in one second, 4 a chunk: the duration of the server is 4 times that of
#            the client, and so is the time per token times the tokens; with 1 a chunk both are 1
# Matters:   By these metrics speculation makes a server slower: with it, the same tokens take as
#            many times longer as tokens are accepted at once, and the better the draft model,
#            the worse the duration and the time per token.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

# Without the instrumentation of the web frameworks, of which it needs none.
python_packages --no-deps openlit==1.45.0
python_packages openai==2.54.0 opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp==1.45.2
python_packages opentelemetry-instrumentation==0.66b2 requests==2.34.2 schedule==1.2.2 xmltodict==1.0.4
cat >"$work/server.py" <<'END'
"""Streams 100 tokens in a second; the model's name is the number of tokens in a chunk."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKENS = 100


class Server(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        tokens = int(request["model"])
        for _ in range(TOKENS // tokens):
            time.sleep(tokens / TOKENS)
            choice = {"index": 0, "delta": {"content": "word " * tokens}, "finish_reason": None}
            self.send(request, choices=[choice])
        counts = {"prompt_tokens": 10, "completion_tokens": TOKENS, "total_tokens": 10 + TOKENS}
        self.send(request, choices=[], usage=counts)
        self.wfile.write(b"data: [DONE]\n\n")

    def send(self, request, **content):
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1}
        chunk |= {"model": request["model"]} | content
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Server).serve_forever()
END
cat >"$work/client.py" <<'END'
"""Prints OpenLIT's metrics of one stream, as multiples of the time that the client saw."""

import sys

import openai
import openlit
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
openlit.init(disable_events=True, pricing_json=sys.argv[2])

client = openai.OpenAI(base_url=sys.argv[1], api_key="none")
for tokens in ("1", "4"):
    for _ in client.chat.completions.create(
        model=tokens,
        messages=[{"role": "user", "content": "words"}],
        stream=True,
        stream_options={"include_usage": True},
    ):
        pass

(resource,) = reader.get_metrics_data().resource_metrics
sums = {
    (metric.name, point.attributes["gen_ai.request.model"]): point.sum
    for scope in resource.scope_metrics
    for metric in scope.metrics
    for point in metric.data.data_points
    if metric.name.startswith("gen_ai.")
}
for tokens in ("1", "4"):
    seconds = sums["gen_ai.client.operation.duration", tokens]
    server = sums["gen_ai.server.request.duration", tokens] / seconds
    token = sums["gen_ai.server.time_per_output_token", tokens] * 100 / seconds
    print(f"{tokens} a chunk: server's duration {server:.0f}, time per token times tokens {token:.0f}")
END
port=$(free_port)
start server python3 "$work/server.py" "$port"
until_ready "http://127.0.0.1:$port/"
echo '{}' >"$work/prices.json"

seen "$(OTEL_TRACES_EXPORTER=none "$work/venv/bin/python" -W ignore "$work/client.py" "http://127.0.0.1:$port/v1" \
  "$work/prices.json" 2>"$work/warnings")" <<'END'
1 a chunk: server's duration 1, time per token times tokens 1
4 a chunk: server's duration 4, time per token times tokens 4
END
