"""An exporter whose responses the test gives, and that keeps its pushes, byte for byte."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.per_request.push_schema import read_push


@dataclass(frozen=True)
class Push:
    """One push as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def observations(self) -> tuple[Observation, ...]:
        return read_push(self.body, time.time()).observations


#: Answers a push: a status and a JSON; anything else is sent as it is, and `None` closes the connection.
Reply = tuple[int, object] | bytes | None


def accepted(push: Push) -> Reply:
    """Answer as the exporter does."""
    pushed = read_push(push.body, time.time())
    errors = [f"requests[{place}]: {why}" for place, why in pushed.errors]
    document = {"accepted": len(pushed.observations), "rejected": len(pushed.errors), "errors": errors}
    return 200 if pushed.observations else 400, document


class Collector:
    """The server, with a thread for each connection; keeps the pushes that came, in order."""

    def __init__(
        self, reply: Callable[[Push], Reply] = accepted, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.reply = reply
        self.pushes: list[Push] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                push = Push(self.path, headers, body)
                collector.pushes.append(push)
                reply = collector.reply(push)
                self.close_connection = True
                if reply is None:
                    return
                if isinstance(reply, bytes):
                    self.wfile.write(reply)
                    return
                status, document = reply
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that went away

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.port = int(self._server.server_address[1])
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"

    @property
    def observations(self) -> list[Observation]:
        """What was pushed, as the exporter reads it."""
        return [observation for push in list(self.pushes) for observation in push.observations]

    @property
    def text(self) -> str:
        """Everything that came."""
        return repr(self.pushes)

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
