"""Child process of `peers`: nginx's stub_status and a small Elasticsearch, on a port that it prints."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STATUS = (
    b"Active connections: 1\nserver accepts handled requests\n 10 10 10\nReading: 0 Writing: 1 Waiting: 0\n"
)
HEALTH = json.dumps(
    {"cluster_name": "c", "status": "green", "timed_out": False, "number_of_nodes": 1}
).encode()


class Stub(BaseHTTPRequestHandler):
    """Tells the two apart by the path."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        body = STATUS if self.path == "/stub_status" else HEALTH
        self.send_response(200)
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Type", self.headers.get("Accept", "text/plain").partition(",")[0])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
