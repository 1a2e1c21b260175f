"""`compare` on the command line: live servers, snapshots, exit codes, and bad usage in
one line.
"""

import json
import sys
import time
from pathlib import Path

import pytest

from compare.sides import written
from prometheus.replay import ReplayServer, series
from support.commands import Outcome, run_here, wrong_refusals
from support.ports import free_port
from support.programs import simulator


def compared(*arguments: str) -> Outcome:
    """Run `compare` with these words, where it says nothing on standard error."""
    outcome = run_here("compare", *arguments)
    assert outcome.err == ""
    return outcome


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    return written(tmp_path)


# --- snapshots


def test_two_snapshots_are_compared_by_name_and_claim(files: dict[str, str]) -> None:
    """As text, and as one document of JSON."""
    plain = files["plain"]
    drafting = files["drafting"]
    outcome = compared(plain, drafting)
    assert outcome.code == 0
    assert outcome.out.startswith(
        "B is 1.41 times as fast per output token as A (1.35 to 1.47)\n"
    )
    named = compared(
        f"no speculation={plain}", f"ngram={drafting}", "--claim", "1.5x"
    ).out
    assert named.startswith(
        "ngram is 1.41 times as fast per output token as no speculation"
    )
    assert "the claim of 1.5x is refuted: it is at most 1.47x" in named
    document = json.loads(compared(plain, drafting, "--json").out)
    assert document["format"] == "vllm-specdec-compare/2"
    assert document["speed"]["outcome"] == "faster"
    assert document["side"]["speculating"] is True


def test_nothing_to_conclude_ends_with_1(files: dict[str, str]) -> None:
    outcome = compared(files["plain"], files["few"])
    assert outcome.code == 1
    assert "only 5 requests finished" in outcome.out


def test_one_of_several_servers_and_models_is_picked(files: dict[str, str]) -> None:
    outcome = compared(f"{files['two']}#http://a:1", f"{files['two']}#http://b:1")
    assert (outcome.code, "speculation (B) gains 1.41x" in outcome.out) == (0, True)
    outcome = compared(files["models"], files["plain"], "--model", "llama")
    assert (outcome.code, "B against A: no difference" in outcome.out) == (0, True)


def test_the_html_report_is_written_unless_matplotlib_is_missing(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.html"
    arguments = (files["plain"], files["drafting"], "--html", str(report))
    assert compared(*arguments).code == 0
    assert "<img" in report.read_text(encoding="utf-8")
    report.unlink()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert wrong_refusals("compare", [(arguments, "pip install matplotlib")]) == []
    assert not report.exists()


# --- refusals

#: Sides that cannot be read: 4, and which.
UNREADABLE: list[tuple[tuple[str, ...], str]] = [
    (
        ("{plain}", "/nowhere/x.json"),
        'side B ("/nowhere/x.json"): /nowhere/x.json: cannot be read: No such file',
    ),
    (("{plain}", "localhost"), "an address is host:port, or begins with http://"),
    (("{plain}", __file__), "no series of a known server"),
    (("{plain}", "old={down}"), "): refused: nothing listens at the address"),
]


def test_a_side_that_cannot_be_read_ends_with_4_and_one_line(
    files: dict[str, str],
) -> None:
    table = [
        ([word.format(**files) for word in arguments], message)
        for arguments, message in UNREADABLE
    ]
    assert wrong_refusals("compare", table, code=4) == []


def test_a_server_that_does_not_listen_ends_with_4_at_once() -> None:
    with ReplayServer([series("nospec")[3]]) as server:
        gone = f"http://127.0.0.1:{free_port()}"
        outcome = run_here("compare", server.url, f"new={gone}", "--for=1h")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (4, "", 1)
    assert f"side new ({gone}): refused: nothing listens at the address" in outcome.err


def test_servers_are_watched_at_the_same_time() -> None:
    """Simulated, without and with drafts, twenty times as fast as the clock, under the
    same load.
    """
    flags = (
        "--scenario",
        "healthy",
        "--speed",
        "20",
        "--seed",
        "5",
        "--num-speculative-tokens",
    )
    with simulator(*flags, "0") as without, simulator(*flags, "3") as speculating:
        # half a minute of theirs: requests that came together finish apart
        time.sleep(1.5)
        outcome = compared(without, speculating, "--for=3s", "--json")
    assert outcome.code == 0
    document = json.loads(outcome.out)
    plain = document["reference"]
    drafting = document["side"]
    assert (plain["speculating"], drafting["speculating"]) == (False, True)
    assert (plain["live"], drafting["num_speculative_tokens"]) == (True, 3)
    # The simulator's own costs and acceptance: 3.3 tokens a step that takes 1.3 as
    # long.
    assert 2.0 < document["speed"]["speedup"]["value"] < 3.2
    assert document["speed"]["outcome"] == "faster"
    assert document["gain"]["speculating"] == "B"
    # Clients pause between requests, so the faster server has some 25 % fewer at a
    # time.
    assert [
        text
        for text in document["warnings"]
        if not text.startswith("not at the same load")
    ] == []
