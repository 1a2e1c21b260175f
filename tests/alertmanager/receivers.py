"""HTTP and SMTP receivers on 127.0.0.1, which keep what an Alertmanager sends."""

import base64
import contextlib
import email
import email.policy
import json
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.programs import eventually


@dataclass(frozen=True)
class Delivery:
    """A request that came in; without a header the authorization is empty."""

    path: str
    authorization: str
    body: Any


@dataclass(frozen=True)
class Mail:
    """A mail that came in: the password of the login, the recipients of the envelope,
    the message.
    """

    password: str
    recipients: tuple[str, ...]
    message: EmailMessage

    def part(self, kind: str) -> str:
        """Return a part of the body, such as html."""
        body = self.message.get_body((kind,))
        assert body is not None, kind
        return str(body.get_content()).replace("\r\n", "\n")


@dataclass
class Receivers:
    """What came in, in order, and the addresses at which it comes in."""

    http: str
    smtp: str
    deliveries: list[Delivery] = field(default_factory=list)
    mails: list[Mail] = field(default_factory=list)

    def to(self, path: str, count: int = 1) -> list[Delivery]:
        """Return the deliveries to a path, once there are so many."""

        def found() -> list[Delivery]:
            return [delivery for delivery in self.deliveries if delivery.path == path]

        eventually(lambda: len(found()) >= count)
        return found()

    def mailed(self, count: int = 1) -> list[Mail]:
        """Return the mails, once there are so many."""
        eventually(lambda: len(self.mails) >= count)
        return list(self.mails)


@contextlib.contextmanager
def receivers() -> Iterator[Receivers]:
    """Run an HTTP and an SMTP receiver until the end of the context."""
    receivers = Receivers("", "")

    class Http(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receivers.deliveries.append(
                Delivery(
                    self.path, self.headers.get("Authorization", ""), json.loads(body)
                )
            )
            # What PagerDuty answers; the others take any 2xx, and Slack wants the word.
            status = 200
            if self.path == "/pagerduty":
                status = 202
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Smtp(_Smtp):
        received = receivers.mails

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Http) as http,
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Smtp) as smtp,
    ):
        smtp.daemon_threads = True
        for server in (http, smtp):
            threading.Thread(
                target=server.serve_forever, args=(0.05,), daemon=True
            ).start()
        receivers.http = f"http://127.0.0.1:{http.server_address[1]}"
        receivers.smtp = f"127.0.0.1:{smtp.server_address[1]}"
        try:
            yield receivers
        finally:
            http.shutdown()
            smtp.shutdown()


class _Smtp(socketserver.StreamRequestHandler):
    """As much of RFC 5321 and of AUTH PLAIN as Alertmanager speaks."""

    received: list[Mail]

    def handle(self) -> None:
        password = ""
        recipients = []
        self._say("220 test")
        while line := self.rfile.readline().decode().strip():
            verb, _, argument = line.partition(" ")
            match verb.upper():
                case "EHLO":
                    self._say("250-test\r\n250 AUTH PLAIN")
                case "AUTH":
                    login = base64.b64decode(argument.split()[1]).decode()
                    password = login.split("\0")[2]
                    self._say("235 ok")
                case "RCPT":
                    recipients.append(argument.partition("<")[2].partition(">")[0])
                    self._say("250 ok")
                case "DATA":
                    self._say("354 go on")
                    message = email.message_from_bytes(
                        self._data(), policy=email.policy.default
                    )
                    self.received.append(Mail(password, tuple(recipients), message))
                    self._say("250 ok")
                case "QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("250 ok")

    def _data(self) -> bytes:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            # A line that begins with a dot is sent with another one before it.
            lines.append(line.removeprefix(b"."))
        return b"".join(lines)

    def _say(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")
