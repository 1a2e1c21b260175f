"""`compare` on the command line: live servers, snapshots, exit codes, and bad usage in one line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from compare.sides import DRAFTING, engine, measures, snapshot_of
from prometheus.replay import ReplayServer, Reply, series
from support.ports import free_port
from support.programs import simulator
from vllm_specdec_exporter import cli, compare, config, snapshot
from vllm_specdec_exporter.option_table import OPTIONS
from vllm_specdec_exporter.result import ExporterResult, PollFailure, TargetResult
from vllm_specdec_exporter.settings import Settings
from vllm_specdec_exporter.simulator.scenario import Scenario, make_phase
from vllm_specdec_exporter.simulator.server import SimulatorServer
from vllm_specdec_exporter.simulator.simulation import Simulation, SimulationConfig
from vllm_specdec_exporter.window import Window

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `compare` with these words; return exit code, standard output and standard error."""
    for option in OPTIONS:
        monkeypatch.delenv(option.variable, raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = cli.main(["compare", *words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


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


def test_two_snapshots_are_compared(run: Run, files: dict[str, str]) -> None:
    code, out, err = run(files["plain"], files["drafting"])
    assert (code, err) == (0, "")
    assert out.startswith("B is 1.41 times as fast per output token as A (1.35 to 1.47)\n")


def test_sides_can_have_names_of_their_own(run: Run, files: dict[str, str]) -> None:
    _, out, _ = run(f"no speculation={files['plain']}", f"ngram={files['drafting']}")
    assert out.startswith("ngram is 1.41 times as fast per output token as no speculation")


def test_a_claim_is_checked(run: Run, files: dict[str, str]) -> None:
    _, out, _ = run(files["plain"], files["drafting"], "--claim", "1.5x")
    assert "the claim of 1.5x is refuted: it is at most 1.47x" in out


def test_nothing_to_conclude_ends_with_1(run: Run, files: dict[str, str]) -> None:
    code, out, err = run(files["plain"], files["few"])
    assert (code, err) == (1, "")
    assert "only 5 requests finished" in out


def test_the_json_is_one_document(run: Run, files: dict[str, str]) -> None:
    code, out, _ = run(files["plain"], files["drafting"], "--json")
    document = json.loads(out)
    assert (code, document["format"]) == (0, "vllm-specdec-compare/1")
    assert document["pairs"][0]["speed"]["outcome"] == "faster"
    assert document["sides"][1]["speculating"] is True


def test_one_of_several_servers_is_picked_by_its_address(run: Run, files: dict[str, str]) -> None:
    code, out, _ = run(f"{files['two']}#http://a:1", f"{files['two']}#http://b:1")
    assert code == 0
    assert "speculation (B) gains 1.41x" in out


def test_one_of_several_models_is_chosen(run: Run, files: dict[str, str]) -> None:
    code, out, _ = run(files["models"], f"{files['plain']}", "--model", "llama")
    assert (code, "B against A: no difference" in out) == (0, True)


def test_the_html_report_is_written(run: Run, files: dict[str, str], tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    code, _, err = run(files["plain"], files["drafting"], "--html", str(report))
    assert (code, err) == (0, "")
    assert "<svg" in report.read_text(encoding="utf-8")


def test_without_matplotlib_the_report_is_refused_before_anything_else(
    run: Run, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    code, out, err = run(files["plain"], files["drafting"], "--html", str(tmp_path / "report.html"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "pip install matplotlib" in err
    assert not (tmp_path / "report.html").exists()


# --- sides that cannot be read: 4, and which

UNREADABLE: dict[str, tuple[tuple[str, ...], str]] = {
    "missing": (("{plain}", "/nowhere/x.json"), 'side B ("/nowhere/x.json"): cannot be read: No such file'),
    "an address without scheme": (("{plain}", "localhost:8000"), "an address would begin with http://"),
    "a directory": (("{plain}", "/tmp"), 'side B ("/tmp"): cannot be read: Is a directory'),
    "not JSON": (("{plain}", __file__), "not a snapshot as check --json and compare --save write it: "),
    "down": (("{plain}", "old={down}"), "): refused: nothing listens at the address"),
    "empty": (("{plain}", "/dev/null"), 'side B ("/dev/null"): not a snapshot'),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_side_that_cannot_be_read_ends_with_4_and_one_line(
    run: Run, files: dict[str, str], name: str
) -> None:
    words, told = UNREADABLE[name]
    code, out, err = run(*(word.format(**files) for word in words))
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert err.startswith("vllm-specdec-exporter compare: error: side ")
    assert told in err


def test_servers_that_do_not_listen_end_with_4_at_once_and_are_all_named(run: Run) -> None:
    with ReplayServer([series("nospec")[3]]) as server:
        gone = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
        begin = time.monotonic()
        code, out, err = run(server.url, gone[0], f"third={gone[1]}", "--for", "1h")
    assert time.monotonic() - begin < 20
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert f"side B ({gone[0]}): refused: nothing listens at the address" in err
    assert f"side third ({gone[1]}): refused" in err
    assert "side A" not in err


def test_a_server_that_goes_away_while_it_is_watched_ends_the_watch(run: Run) -> None:
    there = ReplayServer([series("nospec")[3]])
    going = ReplayServer([*series("nospec")[3:5], Reply(b"", 503)])
    with there, going:
        begin = time.monotonic()
        code, _, err = run(there.url, going.url, "--for", "18s")
    assert time.monotonic() - begin < 16
    assert code == 4
    assert f"side B ({going.url}): http_status: HTTP 503" in err


# --- bad usage: 2 and one line

USAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "one side": (("{plain}",), "1 sides given; allowed: 2 to 26"),
    "no side": ((), "the following arguments are required: SIDE"),
    "too many": (("{plain}",) * 27, "27 sides given; allowed: 2 to 26"),
    "the same file twice": (("{plain}", "x={plain}"), "sides A and x are the same: "),
    "the same server twice": (("http://a:1", "http://a:1/metrics"), "sides A and B are the same: http://a:1"),
    "the same name twice": (("B={plain}", "{few}"), 'two sides are called "B"'),
    "no name": (("{plain}", "={few}"), "a name has 1 to 24 characters"),
    "a long name": (("{plain}", "x" * 25 + "={few}"), "a name has 1 to 24 characters"),
    "no address": (
        ("{plain}", "ftp://x"),
        'side B, URL "ftp://x": not an address; allowed: http://host:port',
    ),
    "a password in a bad address": (("{plain}", "http://u:geheim@ho st:1"), 'side B, URL "'),
    "several servers": (("{plain}", "{two}"), "holds 2 servers; write FILE#ADDRESS with one of http://a:1, "),
    "another server": (
        ("{plain}", "{two}#http://c"),
        'has no server "http://c"; it has http://a:1, http://b:1',
    ),
    "several models": (("{plain}", "{models}"), "side B serves several models; choose one with --model: "),
    "another model": (
        ("{plain}", "{few}", "--model", "x"),
        '--model "x": side A does not serve it; it serves',
    ),
    "a claim in words": (
        ("{plain}", "{few}", "--claim", "fast"),
        '--claim "fast": allowed: a speedup above 0',
    ),
    "a claim of nothing": (("{plain}", "{few}", "--claim", "0"), '--claim "0": allowed: a speedup above 0'),
    "an endless claim": (("{plain}", "{few}", "--claim", "inf"), '--claim "inf": allowed'),
    "no unit": (("{plain}", "{few}", "--for", "10"), '--for "10": a duration needs a unit'),
    "too long": (("{plain}", "{few}", "--for", "2h"), '--for "2h": allowed: from 1s to 1h'),
    "nothing to save": (("{plain}", "{few}", "--save", "x"), '--save "x": no side is watched'),
    "nowhere to save": (("{plain}", "http://a:1", "--save", "/nowhere/x"), '--save "/nowhere/x": cannot be'),
    "a directory as report": (("{plain}", "{few}", "--html", "/tmp"), '--html "/tmp": cannot be written'),
    "an unknown threshold": (("{plain}", "http://a:1", "--threshold", "x=1"), "unknown threshold 'x'"),
    "an unknown profile": (("{plain}", "http://a:1", "--cost.profile", "x"), '--cost.profile "x": no such'),
    "half a certificate": (("{plain}", "http://a:1", "--vllm.cert-file", "{few}"), "go together"),
    "no certificates": (("{plain}", "https://a:1", "--vllm.ca-file", "{few}"), "no certificates in it"),
    "an option of serve": (("{plain}", "{few}", "--spec.config", "{{}}"), "unrecognized arguments"),
}


@pytest.mark.parametrize("name", USAGE)
def test_bad_usage_ends_with_2_and_one_line(run: Run, files: dict[str, str], name: str) -> None:
    words, told = USAGE[name]
    code, out, err = run(*(word.format(**files) for word in words))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert "geheim" not in err


def test_the_help_names_the_exit_codes(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    told = " ".join(out.split())
    assert "0 compared; 1 compared, but nothing can be said of the speed; 2 bad usage; 4 a side" in told


# --- servers


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """Two simulated servers, twenty times as fast as the clock, under the same load."""
    flags = ("--scenario", "healthy", "--speed", "20", "--seed", "5")
    with (
        simulator(*flags, "--num-speculative-tokens", "0") as plain,
        simulator(*flags, "--num-speculative-tokens", "3") as drafting,
    ):
        time.sleep(1.5)  # half a minute of theirs: requests that came together finish apart
        yield {"plain": plain, "drafting": drafting}


def test_two_servers_are_watched_at_the_same_time(run: Run, servers: dict[str, str]) -> None:
    begin = time.monotonic()
    code, out, err = run(servers["plain"], servers["drafting"], "--for", "3s", "--json")
    assert time.monotonic() - begin < 6
    assert (code, err) == (0, "")
    document = json.loads(out)
    plain, drafting = document["sides"]
    (pair,) = document["pairs"]
    assert (plain["speculating"], drafting["speculating"]) == (False, True)
    assert drafting["num_speculative_tokens"] == 3
    assert plain["live"]
    # The simulator's own costs and acceptance: 3.3 tokens a step that takes 1.3 as long.
    assert 2.0 < pair["speed"]["speedup"]["value"] < 3.2
    assert pair["speed"]["outcome"] == "faster"
    assert pair["gain"]["speculating"] == "B"
    assert document["warnings"] == []


def test_what_was_watched_can_be_saved_and_be_a_side_later(
    run: Run, servers: dict[str, str], tmp_path: Path
) -> None:
    saved = tmp_path / "before.json"
    _, first, _ = run(servers["plain"], servers["drafting"], "--for", "2s", "--json", "--save", str(saved))
    code, again, err = run(*(f"{saved}#{address}" for address in servers.values()), "--json")
    assert (code, err) == (0, "")
    one, other = json.loads(first), json.loads(again)
    assert one["pairs"] == other["pairs"]
    assert not other["sides"][0]["live"]


def test_a_snapshot_beside_a_server_is_told_to_be_of_another_period(
    run: Run, servers: dict[str, str], files: dict[str, str]
) -> None:
    code, out, err = run(files["plain"], servers["drafting"], "--for", "2s")
    assert (code in (0, 1), err) == (True, "")
    assert "warning: not over the same period (A 2026-" in " ".join(out.split())


async def _watched(*configs: tuple[int, dict[str, Any]], seconds: float = 2.5) -> list[compare.Side]:
    """Watch simulators in this very loop: each with a K and parameters of its phase."""
    servers = [
        SimulatorServer(
            Simulation(
                SimulationConfig(
                    num_speculative_tokens=k,
                    scenario=Scenario("test", (make_phase("healthy", parameters, 3600),)),
                ),
                seed=number,
            ),
            speed=20,
        )
        for number, (k, parameters) in enumerate(configs)
    ]
    try:
        for server in servers:
            await server.start()
            await server.advance(30)
        sources = [compare.parse_source(s.url, chr(65 + i)) for i, s in enumerate(servers)]
        window = Window(seconds)
        settings = Settings(windows=(window,), judged=window, slack=seconds, latencies=True)
        upstream = config.UpstreamConfig(timeout=4.0)
        results = await compare.watch(sources, upstream, settings, seconds)
    finally:
        for server in servers:
            await server.stop()
    return _sides(sources, results)


def _sides(sources: Sequence[compare.Source], results: Sequence[ExporterResult]) -> list[compare.Side]:
    return [
        compare.side_of(result, source.name, source=source.shown, live=True)
        for source, result in zip(sources, results, strict=True)
    ]


async def test_a_better_drafter_is_found_to_be_faster_and_longer() -> None:
    poor, good = await _watched((3, {"acceptance": 0.4}), (3, {"acceptance": 0.95}))
    (pair,) = compare.compare([poor, good]).pairs
    assert pair.speed.outcome is compare.Outcome.FASTER
    assert pair.acceptance_length_difference is not None
    assert (pair.acceptance_length_difference.low or 0) > 0.5
    assert pair.gain is None


async def test_a_server_under_less_load_is_pointed_out() -> None:
    busy, idle = await _watched((3, {"clients": 60}), (3, {"clients": 8}))
    comparison = compare.compare([busy, idle])
    assert any("not at the same load (requests at a time: B" in warning for warning in comparison.warnings)


async def test_like_servers_are_not_called_different_in_acceptance() -> None:
    one, other = await _watched((4, {}), (4, {}))
    (pair,) = compare.compare([one, other]).pairs
    difference = pair.acceptance_length_difference
    assert difference is not None
    assert (difference.low or 0) < 0 < (difference.high or 0)
