"""`POST /api/v1/requests` of the real process: who may push, what is taken, and the
metrics that follow.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.rig import connect, vllm
from support.exporter import (
    NO_SERVER,
    Answer,
    Metrics,
    RunningExporter,
    request,
    running_exporter,
)
from support.faulty_server import FaultyServer, answer
from support.programs import eventually
from tap.streams import RECORD
from webconfig.https import basic, guarded
from webconfig.pki import Pki, hashed

PATH = "/api/v1/requests"
TOKEN = "a-token-for-tests"

ONE = {
    "model": "llama",
    "temperature": 0.7,
    "request_type": "code",
    "tenant": "team-a",
    "stream": True,
    "completion_tokens": 212,
    "time_to_first_token_seconds": 0.2,
    "time_per_output_token_seconds": 0.01,
    "speculative_decoding": RECORD,
}


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("push") / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture(scope="module")
def shared(token_file: Path) -> Iterator[RunningExporter]:
    with running_exporter(
        *NO_SERVER, "--push.bearer-token-file", str(token_file)
    ) as exporter:
        yield exporter


@pytest.fixture
def exporter(shared: RunningExporter, token_file: Path) -> RunningExporter:
    """An exporter that others pushed to before."""
    token_file.write_text(f"{TOKEN}\n")
    return shared


def post(
    exporter: RunningExporter, body: object, token: str | None = TOKEN, **headers: str
) -> Answer:
    """Push something; what is no text is sent as JSON."""
    if token is not None:
        headers.setdefault("Authorization", f"Bearer {token}")
    if isinstance(body, bytes):
        content = body
    else:
        content = json.dumps(body).encode()
    return request(exporter.url + PATH, "POST", 20, body=content, **headers)


def of(*items: object) -> dict[str, Any]:
    return {"requests": list(items)}


def grown(
    exporter: RunningExporter, earlier: Metrics, name: str, **labels: str
) -> float:
    """By how much a counter has grown."""
    current = exporter.metrics()
    return current.total(name, **labels) - earlier.total(name, **labels)


class TestTaken:
    def test_the_answer(self, exporter: RunningExporter) -> None:
        """What was taken is told, also of a push of nothing."""
        answer = post(exporter, of(ONE, ONE))

        assert answer.status == 200
        assert answer.headers["content-type"].startswith("application/json")
        nothing_wrong = {"rejected": 0, "errors": [], "warnings": []}
        assert json.loads(answer.body) == {"accepted": 2, **nothing_wrong}
        assert json.loads(post(exporter, of()).body) == {"accepted": 0, **nothing_wrong}

    def test_nothing_of_what_is_not_known_is_kept(
        self, exporter: RunningExporter
    ) -> None:
        """What is no field of a push is nowhere afterwards."""
        unknown = {
            "messages": "CANARY",
            "speculative_decoding": {**RECORD, "x": "CANARY"},
        }
        assert post(exporter, of({**ONE, **unknown})).status == 200
        everything = [
            exporter.get(path).text
            for path in ("/metrics", "/", "/config", "/api/v1/snapshot")
        ]

        assert not any("CANARY" in text for text in [*everything, exporter.log()])


class TestRefused:
    def test_the_token_is_exchanged(
        self, exporter: RunningExporter, token_file: Path
    ) -> None:
        """A new token is in force with the next push, the old one is not; the scheme is
        in any case.
        """
        token_file.write_text("another")

        assert post(exporter, of(ONE)).status == 401
        assert post(exporter, of(ONE), Authorization="bearer  another ").status == 200

    def test_the_valid_part_of_a_push_is_counted(
        self, exporter: RunningExporter
    ) -> None:
        """What can be used of a push is; of the rest, place and reason are told."""
        earlier = exporter.metrics()
        bad = [
            {**ONE, "temperature": -1},
            {**ONE, "completion_tokens": -1},
            {**ONE, "completion_tokens": 1.5},
            {**ONE, "model": 7},
            {**ONE, "speculative_decoding": []},
            {**ONE, "time_to_first_token_seconds": "fast"},
            "text",
            None,
            [],
        ]
        answer = post(exporter, of(ONE, *bad, ONE))
        document = json.loads(answer.body)

        assert answer.status == 200
        assert document["accepted"] == 2
        assert document["rejected"] == len(bad)
        assert (
            document["errors"][0]
            == "requests[1]: Expected `float` >= 0.0 - at `$.temperature`"
        )
        assert [text.partition(":")[0] for text in document["errors"]] == [
            f"requests[{n + 1}]" for n in range(len(bad))
        ]
        assert grown(exporter, earlier, "push_rejected_total") == len(bad)
        assert grown(exporter, earlier, "request_observations_total") == 2

        # A push of which nothing can be used is refused; the first errors stand for
        # all.
        refused = post(exporter, of(*[{"temperature": -1}] * 50))
        document = json.loads(refused.body)
        assert refused.status == 400
        assert document["accepted"] == 0
        assert document["rejected"] == 50
        assert len(document["errors"]) == 10

    def test_compressed_and_truncated_bodies_are_refused(
        self, exporter: RunningExporter
    ) -> None:
        """A body that is compressed, or ends in its middle, is refused, and fills no
        log.
        """
        earlier = exporter.metrics()
        body = b'{"requests": []}'

        assert post(exporter, body, Content_Encoding="gzip").status == 415
        assert post(exporter, body, token="no", Content_Encoding="gzip").status == 401
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Length: 100"
        )
        # The client leaves in the middle of its body.
        with connect(exporter.url) as connection:
            connection.sendall(f'{head}\r\n\r\n{{"requests": ['.encode())
        eventually(lambda: grown(exporter, earlier, "push_rejected_total") == 2)
        assert grown(exporter, earlier, "request_observations_total") == 0
        assert "traceback" not in exporter.log()


def test_the_counters_of_the_server_stay(token_file: Path) -> None:
    """Whatever is pushed in the name of its model; so do verdict and advice."""
    token_file.write_text(TOKEN)
    flags = ("--push.bearer-token-file", str(token_file))
    names = ("drafts_total", "draft_tokens_total", "accepted_tokens_total")
    names += ("generation_tokens_total", "payoff", "advice")
    with (
        FaultyServer(answer(vllm(model=ONE["model"]))) as server,
        running_exporter("--vllm.url", server.url, *flags) as exporter,
    ):
        exporter.wait_until_up()
        earlier = exporter.metrics()
        assert post(exporter, of(*[ONE] * 500)).status == 200
        polls = len(server.polls())
        eventually(lambda: len(server.polls()) > polls + 1)
        later = exporter.metrics()
    assert later.total("request_observations_total") == 500
    assert earlier.values("drafts_total")
    for name in names:
        assert later.values(name) == earlier.values(name), name


def test_users_and_the_token(tmp_path: Path, token_file: Path) -> None:
    """Users of the web configuration read; who pushes has the token, and it opens
    nothing else.
    """
    token_file.write_text(TOKEN)
    flags = ("--push.bearer-token-file", str(token_file))
    with guarded(
        Pki(tmp_path), {"basic_auth_users": {"prometheus": hashed("example")}}, *flags
    ) as exporter:
        right = basic("prometheus", "example")

        assert post(exporter, of(ONE)).status == 200
        assert post(exporter, of(ONE), token=None).status == 401
        assert post(exporter, of(ONE), Authorization=right).status == 401
        assert exporter.get("/metrics").status == 401
        assert exporter.get("/metrics", Authorization=f"Bearer {TOKEN}").status == 401
        assert exporter.get(PATH, Authorization=f"Bearer {TOKEN}").status in (401, 405)
        metrics = Metrics(exporter.get("/metrics", Authorization=right).text)
        assert (
            metrics.value(
                "request_observations_total", source="push", record="detailed"
            )
            == 1
        )
