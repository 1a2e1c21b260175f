from __future__ import annotations

import pytest

from vllm_specdec_exporter.target import Target, parse_target


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://host:8000", Target("http://host:8000/metrics")),
        ("http://host:8000/", Target("http://host:8000/metrics")),
        ("http://host:8000/metrics", Target("http://host:8000/metrics")),
        ("http://host:8000/metrics/", Target("http://host:8000/metrics")),
        ("http://host", Target("http://host/metrics")),
        ("https://host/vllm/metrics", Target("https://host/vllm/metrics")),
        ("http://host/other/", Target("http://host/other")),
        (" http://host:8000 ", Target("http://host:8000/metrics")),
        ("http://127.0.0.1:8000", Target("http://127.0.0.1:8000/metrics")),
        ("http://[::1]:8000", Target("http://[::1]:8000/metrics")),
        ("http://host:8000?model=a", Target("http://host:8000/metrics?model=a")),
        ("http://host:8000/metrics?model=a&b=c", Target("http://host:8000/metrics?model=a&b=c")),
        ("http://me@host:8000", Target("http://host:8000/metrics", user="me")),
        ("http://me:pw@host:8000", Target("http://host:8000/metrics", user="me", password="pw")),
        ("http://me:p%40%2F@host", Target("http://host/metrics", user="me", password="p@/")),
        ("unix:/run/vllm.sock", Target("http://localhost/metrics", "/run/vllm.sock")),
        ("unix:///run/vllm.sock", Target("http://localhost/metrics", "/run/vllm.sock")),
        ("unix:/run/vllm.sock:/metrics", Target("http://localhost/metrics", "/run/vllm.sock")),
        ("unix:/run/vllm.sock:/m/", Target("http://localhost/m", "/run/vllm.sock")),
        ("unix:/run/vllm.sock:/m?model=a", Target("http://localhost/m?model=a", "/run/vllm.sock")),
        ("unix:/run/vllm.sock:?model=a", Target("http://localhost/metrics?model=a", "/run/vllm.sock")),
    ],
)
def test_parse(text: str, expected: Target) -> None:
    """A path is /metrics unless given; credentials are taken out of the address."""
    assert expected == parse_target(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:8000",
        "//host:8000",
        "ftp://host",
        "http://",
        "http:///metrics",
        "http://host/#a",
        "8000",
        "http://host:x",
        "http://host:99999",
        "http://host:-1",
        "http://[::1",
        "http://me:hunter2@host:x",
    ],
)
def test_not_an_address(text: str) -> None:
    """What is no address is refused with what is one; it is not repeated, for it may hold a password."""
    with pytest.raises(
        ValueError,
        match=r"^not an address; allowed: http://host:port, https://host:port or unix:/path/to.sock$",
    ):
        parse_target(text)


@pytest.mark.parametrize("text", ["unix:", "unix:run/vllm.sock", "unix:./vllm.sock", "unix://host/x"])
def test_not_a_socket(text: str) -> None:
    """A socket is an absolute path."""
    with pytest.raises(ValueError, match=r"^a Unix socket is written unix:/path/to.sock, with /metrics or "):
        parse_target(text)


@pytest.mark.parametrize("host", ["a b", "a\x00b", "a\x7fb"])
def test_not_a_host(host: str) -> None:
    """A host has no white space or control characters."""
    with pytest.raises(ValueError, match=r"^not an address; allowed: http://host:port, "):
        parse_target(f"http://{host}:8000")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("http://host:8000", "http://host:8000"),
        ("http://me:pw@host:8000/metrics", "http://host:8000"),
        ("https://host/vllm/metrics", "https://host/vllm"),
        ("http://host/other", "http://host/other"),
        ("http://host:8000/metrics?model=a", "http://host:8000/metrics?model=a"),
        ("unix:///run/vllm.sock", "unix:/run/vllm.sock"),
        ("unix:/run/vllm.sock:/other", "unix:/run/vllm.sock:/other"),
        ("unix:/run/vllm.sock:/metrics?model=a", "unix:/run/vllm.sock:/metrics?model=a"),
        ("unix:/run/vllm.sock:/other?model=a", "unix:/run/vllm.sock:/other?model=a"),
    ],
)
def test_name(text: str, name: str) -> None:
    """Labels and logs show the address without credentials and without the usual path."""
    assert name == parse_target(text).name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://host:8000?model=a", "http://host:8000?model=b"),
        ("unix:/vllm.sock:/metrics?model=a", "unix:/vllm.sock:/metrics?model=b"),
        ("unix:/vllm.sock:/other?model=a", "unix:/vllm.sock:/other?model=b"),
    ],
)
def test_servers_behind_one_router_have_names_of_their_own(one: str, other: str) -> None:
    """llama.cpp's router answers for several models at one path."""
    assert parse_target(one).name != parse_target(other).name


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://host:8000", "http://host:8000/version"),
        ("https://host/vllm/metrics", "https://host/vllm/version"),
        ("http://host/metrics?model=a", "http://host/version"),
        ("http://host/other", ""),
        ("unix:/run/vllm.sock", "http://localhost/version"),
    ],
)
def test_version_url(text: str, url: str) -> None:
    """VLLM tells its version beside its metrics; elsewhere it cannot be guessed."""
    assert url == parse_target(text).version_url
