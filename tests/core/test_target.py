"""Addresses of servers: what is asked, and under which name it is shown."""

from __future__ import annotations

from support.builders import refusal
from vllm_specdec_exporter.config.values import Target, parse_target

#: A path is /metrics unless given; credentials are taken out of the address.
TARGETS = {
    "http://host:8000": Target("http://host:8000/metrics"),
    "http://host:8000/": Target("http://host:8000/metrics"),
    "http://host:8000/metrics": Target("http://host:8000/metrics"),
    "http://host:8000/metrics/": Target("http://host:8000/metrics"),
    "http://host": Target("http://host/metrics"),
    "https://host/vllm/metrics": Target("https://host/vllm/metrics"),
    "http://host/other/": Target("http://host/other"),
    " http://host:8000 ": Target("http://host:8000/metrics"),
    "http://127.0.0.1:8000": Target("http://127.0.0.1:8000/metrics"),
    "http://[::1]:8000": Target("http://[::1]:8000/metrics"),
    "http://host:8000?model=a": Target("http://host:8000/metrics?model=a"),
    "http://host:8000/metrics?model=a&b=c": Target("http://host:8000/metrics?model=a&b=c"),
    "http://me@host:8000": Target("http://host:8000/metrics", user="me"),
    "http://me:pw@host:8000": Target("http://host:8000/metrics", user="me", password="pw"),
    "http://me:p%40%2F@host": Target("http://host/metrics", user="me", password="p@/"),
    "unix:/run/vllm.sock": Target("http://localhost/metrics", "/run/vllm.sock"),
    "unix:///run/vllm.sock": Target("http://localhost/metrics", "/run/vllm.sock"),
    "unix:/run/vllm.sock:/metrics": Target("http://localhost/metrics", "/run/vllm.sock"),
    "unix:/run/vllm.sock:/m/": Target("http://localhost/m", "/run/vllm.sock"),
    "unix:/run/vllm.sock:/m?model=a": Target("http://localhost/m?model=a", "/run/vllm.sock"),
    "unix:/run/vllm.sock:?model=a": Target("http://localhost/metrics?model=a", "/run/vllm.sock"),
}
#: Labels and logs show it without credentials and without the usual path. A router answers for several
#: models at one path, so what tells them apart stays.
NAMES = {
    "http://host:8000": "http://host:8000",
    "http://me:pw@host:8000/metrics": "http://host:8000",
    "https://host/vllm/metrics": "https://host/vllm",
    "http://host/other": "http://host/other",
    "http://host:8000/metrics?model=a": "http://host:8000/metrics?model=a",
    "unix:///run/vllm.sock": "unix:/run/vllm.sock",
    "unix:/run/vllm.sock:/other": "unix:/run/vllm.sock:/other",
    "unix:/run/vllm.sock:/metrics?model=a": "unix:/run/vllm.sock:/metrics?model=a",
    "unix:/run/vllm.sock:/other?model=a": "unix:/run/vllm.sock:/other?model=a",
}
#: VLLM tells its version beside its metrics; elsewhere it cannot be guessed.
VERSIONS = {
    "http://host:8000": "http://host:8000/version",
    "https://host/vllm/metrics": "https://host/vllm/version",
    "http://host/metrics?model=a": "http://host/version",
    "http://host/other": "",
    "unix:/run/vllm.sock": "http://localhost/version",
}
#: None is repeated when it is refused, for it may hold a password.
NO_ADDRESSES = ["", "host", "host:8000", "//host:8000", "ftp://host", "http://", "http:///metrics", "8000"]
NO_ADDRESSES += ["http://host/#a", "http://host:x", "http://host:99999", "http://host:-1", "http://[::1"]
NO_ADDRESSES += ["http://me:hunter2@host:x", *(f"http://a{sign}b:8000" for sign in " \x00\x7f")]
NO_SOCKETS = ["unix:", "unix:run/vllm.sock", "unix:./vllm.sock", "unix://host/x"]


def test_an_address_is_read_named_and_asked_for_its_version() -> None:
    assert {text: parse_target(text) for text in TARGETS} == TARGETS
    assert {text: parse_target(text).name for text in NAMES} == NAMES
    assert {text: parse_target(text).version_url for text in VERSIONS} == VERSIONS


def test_what_is_no_address_is_refused_with_what_is_one() -> None:
    allowed = "not an address; allowed: http://host:port, https://host:port or unix:/path/to.sock"
    assert [refusal(ValueError, parse_target, text) for text in NO_ADDRESSES] == [allowed] * len(NO_ADDRESSES)
    socket = "a Unix socket is written unix:/path/to.sock, with /metrics or "
    said = [refusal(ValueError, parse_target, text)[: len(socket)] for text in NO_SOCKETS]
    assert said == [socket] * len(NO_SOCKETS)
