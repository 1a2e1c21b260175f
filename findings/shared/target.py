"""Serves one file as /metrics of a target: python3 target.py PORT FILE."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Target(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = Path(sys.argv[2]).read_bytes()
        self.send_response(200)
        # Prometheus 3 refuses a target without a known type.
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Target).serve_forever()
