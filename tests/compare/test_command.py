"""`compare` on the command line: live servers, snapshots, exit codes, and bad usage in one line."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compare.sides import DRAFTING, engine, measures, snapshot_of
from prometheus.replay import ReplayServer, series
from support.commands import Outcome, run_here, wrong_refusals
from support.ports import free_port
from support.programs import simulator
from vllm_specdec_exporter.observe.result import ExporterResult, PollFailure, TargetResult
from vllm_specdec_exporter.publish import snapshot


def compared(*words: str) -> Outcome:
    """Run `compare` with these words, where it says nothing on standard error."""
    outcome = run_here("compare", *words)
    assert outcome.err == ""
    return outcome


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Snapshots of servers, by what they hold."""
    down = TargetResult("http://gone:8000", failure=PollFailure("refused", "nothing listens at the address"))
    plain, drafting = engine(measures()), engine(measures(0.0142, **DRAFTING))
    results = {
        "plain": snapshot_of(plain, address="http://plain:8000"),
        "drafting": snapshot_of(drafting, address="http://drafting:8000"),
        "few": snapshot_of(engine(measures(0.02, 5.0))),
        "models": snapshot_of(plain, engine(measures(), model="qwen")),
        "down": ExporterResult("0.1.0", 0.0, (down,)),
        "two": ExporterResult(
            "0.1.0",
            0.0,
            snapshot_of(plain, address="http://a:1").targets
            + snapshot_of(drafting, address="http://b:1").targets,
        ),
    }
    paths = {}
    for name, result in results.items():
        path = tmp_path / f"{name}.json"
        path.write_bytes(snapshot.encode(result))
        paths[name] = str(path)
    return paths


# --- snapshots


def test_two_snapshots_are_compared_by_name_and_claim(files: dict[str, str]) -> None:
    """As text, and as one document of JSON."""
    plain, drafting = files["plain"], files["drafting"]
    outcome = compared(plain, drafting)
    assert outcome.code == 0
    assert outcome.out.startswith("B is 1.41 times as fast per output token as A (1.35 to 1.47)\n")
    named = compared(f"no speculation={plain}", f"ngram={drafting}", "--claim", "1.5x").out
    assert named.startswith("ngram is 1.41 times as fast per output token as no speculation")
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
    words = (files["plain"], files["drafting"], "--html", str(report))
    assert compared(*words).code == 0
    assert "<svg" in report.read_text(encoding="utf-8")
    report.unlink()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert wrong_refusals("compare", [(words, "pip install matplotlib")]) == []
    assert not report.exists()


# --- refusals

#: Sides that cannot be read: 4, and which.
UNREADABLE: list[tuple[tuple[str, ...], str]] = [
    (("{plain}", "/nowhere/x.json"), 'side B ("/nowhere/x.json"): cannot be read: No such file'),
    (("{plain}", "localhost:8000"), "an address would begin with http://"),
    (("{plain}", __file__), "not a snapshot as check --json writes it: "),
    (("{plain}", "old={down}"), "): refused: nothing listens at the address"),
]


def test_a_side_that_cannot_be_read_ends_with_4_and_one_line(files: dict[str, str]) -> None:
    table = [([word.format(**files) for word in words], told) for words, told in UNREADABLE]
    assert wrong_refusals("compare", table, code=4) == []


def test_a_server_that_does_not_listen_ends_with_4_at_once() -> None:
    with ReplayServer([series("nospec")[3]]) as server:
        gone = f"http://127.0.0.1:{free_port()}"
        outcome = run_here("compare", server.url, f"new={gone}", "--for", "1h")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (4, "", 1)
    assert f"side new ({gone}): refused: nothing listens at the address" in outcome.err


#: Bad usage: 2 and one line.
USAGE: list[tuple[tuple[str, ...], str]] = [
    (("{plain}",), "the following arguments are required: SIDE"),
    (("{plain}", "{few}", "{two}"), "unrecognized arguments"),
    (("{plain}", "x={plain}"), "sides A and x are the same: "),
    (("http://a:1", "http://a:1/metrics"), "sides A and B are the same: http://a:1"),
    (("B={plain}", "{few}"), 'both sides are called "B"'),
    (("{plain}", "x" * 25 + "={few}"), "a name has 1 to 24 characters"),
    (("{plain}", "ftp://x"), 'side B, URL "ftp://x": not an address; allowed: http://host:port'),
    (("{plain}", "http://u:geheim@ho st:1"), 'side B, URL "'),
    (("{plain}", "{two}"), "holds 2 servers; write FILE#ADDRESS with one of http://a:1, "),
    (("{plain}", "{two}#http://c"), 'has no server "http://c"; it has http://a:1, http://b:1'),
    (("{plain}", "{models}"), "side B serves several models; choose one with --model: "),
    (("{plain}", "{few}", "--model", "x"), '--model "x": side A does not serve it; it serves'),
    (("{plain}", "{few}", "--claim", "0"), '--claim "0": allowed: a speedup above 0'),
    (("{plain}", "{few}", "--for", "2h"), '--for "2h": allowed: from 1s to 1h'),
    (("{plain}", "{few}", "--html", "/tmp"), '--html "/tmp": cannot be written'),
    (("{plain}", "http://a:1", "--threshold", "x=1"), "unknown threshold 'x'"),
    (("{plain}", "https://a:1", "--vllm.ca-file", "{few}"), "no certificates in it"),
]


def test_bad_usage_ends_with_2_and_one_line(files: dict[str, str]) -> None:
    table = [([word.format(**files) for word in words], told) for words, told in USAGE]
    assert wrong_refusals("compare", table) == []
    assert "geheim" not in run_here("compare", files["plain"], "http://u:geheim@ho st:1").err


# --- servers


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, str]]:
    """Simulated servers without and with drafts, twenty times as fast as the clock, under the same load."""
    flags = ("--scenario", "healthy", "--speed", "20", "--seed", "5", "--num-speculative-tokens")
    with simulator(*flags, "0") as plain, simulator(*flags, "3") as drafting:
        time.sleep(1.5)  # half a minute of theirs: requests that came together finish apart
        yield plain, drafting


def test_servers_are_watched_at_the_same_time(servers: tuple[str, str]) -> None:
    outcome = compared(*servers, "--for", "3s", "--json")
    assert outcome.code == 0
    document = json.loads(outcome.out)
    plain, drafting = document["reference"], document["side"]
    assert (plain["speculating"], drafting["speculating"]) == (False, True)
    assert (plain["live"], drafting["num_speculative_tokens"]) == (True, 3)
    # The simulator's own costs and acceptance: 3.3 tokens a step that takes 1.3 as long.
    assert 2.0 < document["speed"]["speedup"]["value"] < 3.2
    assert document["speed"]["outcome"] == "faster"
    assert document["gain"]["speculating"] == "B"
    assert document["warnings"] == []
