"""`check` with saved texts of metrics instead of a server: what they say, and what they
cannot.
"""

import json
import os
import re
import sys
import threading
from pathlib import Path

import pytest

from golden.cases import drafted
from prometheus.replay import ReplayServer, series
from support.commands import run, run_here, without_waiting, wrong_refusals
from vllm_specdec_exporter.commands import check
from vllm_specdec_exporter.publish import snapshot

_CONFIG = json.dumps(
    {"method": "eagle3", "model": "a/draft", "num_speculative_tokens": 3}
)
_SIZED = ("--cost.hardware", "4xh100", "--spec.config", _CONFIG)
_SHARES = (0.9, 0.7, 0.4)
#: Of a server under load, a minute apart.
FIRST = drafted(1e3, 8, _SHARES, 50.0)
SECOND = drafted(2e4, 8, _SHARES, 1000.0)
IDLE = series("ngram-phases")[-1]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The two texts, saved a minute apart."""
    paths = []
    for index, body in enumerate((FIRST, SECOND)):
        path = tmp_path / f"{index}.txt"
        path.write_bytes(body)
        os.utime(path, (1.8e9, 1.8e9 + 60 * index))
        paths.append(str(path))
    return paths


def test_one_text_has_the_verdict_of_a_whole_life(files: list[str]) -> None:
    """At the load of its moment; it has no rate, and says what a second one is for."""
    outcome = run_here("check", files[1], *_SIZED)
    text = " ".join(outcome.out.split())
    assert outcome.code == 0
    assert "BENEFICIAL meta-llama" in text
    assert "20,000 drafts in the server's whole life" in text
    assert "window lifetime drafts" in text
    assert "generated tokens/s –" in text
    assert "hint: one saved text has means over the server's whole life" in text
    assert "check FIRST SECOND" in text
    (target,) = snapshot.decode(
        run_here("check", files[1], "--json", *_SIZED).out.encode()
    ).targets
    assert target.engines[0].windows[0].generation_tokens_per_second is None


def test_what_one_text_of_an_idle_server_cannot_say_is_unknown(tmp_path: Path) -> None:
    """Its last moment has no batch, so there is no verdict, but length and positions
    there are.
    """
    (tmp_path / "idle.txt").write_bytes(IDLE)
    outcome = run_here("check", str(tmp_path / "idle.txt"), *_SIZED)
    text = " ".join(outcome.out.split())
    assert outcome.code == 3
    assert "UNKNOWN tiny-llama" in text
    assert "to do no advice (one saved text does not show at which load" in text
    assert re.search(r"mean acceptance length 3\.\d+", text)


def test_two_texts_are_a_window(files: list[str]) -> None:
    """Its length is that of the files' times or of --for, and unknown without: copies
    are all of one time.
    """
    text = " ".join(run_here("check", *files, *_SIZED).out.split())
    assert "window 1m, real span 60.0 s drafts 19,000" in text
    text = " ".join(run_here("check", *files, "--for=10s", *_SIZED).out.split())
    assert "window 10s, real span 10.0 s drafts 19,000" in text
    for path in files:
        os.utime(path, (1.8e9, 1.8e9))
    text = " ".join(run_here("check", *files, *_SIZED).out.split())
    assert "window between drafts 19,000" in text
    assert "generated tokens/s –" in text
    assert "hint: nothing says how much time lies between the saved texts" in text


def test_a_file_that_is_named_twice_is_read_twice(tmp_path: Path) -> None:
    """Something writes it anew while `check` waits."""
    path = tmp_path / "metrics.txt"
    path.write_bytes(FIRST)
    timer = threading.Timer(0.5, path.write_bytes, [SECOND])
    timer.start()
    outcome = run_here("check", *[str(path)] * 2, "--for=1s", *_SIZED)
    timer.join()
    assert "drafts 19,000" in " ".join(outcome.out.split())


def test_what_says_nothing_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Of a file that nobody writes anew there is no time between two texts, and
    nothing was idle.
    """
    texts = {"metrics": FIRST, "empty": b"\n", "foo.json": b'{"foo": 1}'}
    for name, body in texts.items():
        (tmp_path / name).write_bytes(body)
    metrics, empty, foo = (str(tmp_path / name) for name in texts)
    refusals = [
        ([metrics, metrics, "--for=1s"], "metrics: not written anew within 1s; save"),
        ([empty], "empty: empty; save the server's /metrics in it"),
        ([foo], "foo.json: neither a server's metrics nor a snapshot as check --json"),
    ]
    assert wrong_refusals("check", refusals, code=4) == []


def test_texts_of_two_runs_are_refused(files: list[str]) -> None:
    """Counters fall when a server restarts, and in the wrong order."""
    refusal = (list(reversed(files)), "counters fell between ")
    assert wrong_refusals("check", [refusal], code=4) == []


def test_a_text_may_come_through_a_pipe(files: list[str]) -> None:
    """`curl ... | check`, with `-` or without, also with the head of the response; an
    empty pipe is none.
    """
    head = "printf 'HTTP/1.1 200 OK\\r\\nServer: x\\r\\n\\r\\n'"
    command = "python -m vllm_specdec_exporter check"
    for script in (
        f"cat {files[1]} | {command} -",
        f"({head}; cat {files[1]}) | {command} --json",
    ):
        outcome = run("-c", script.replace("python", sys.executable), command=("bash",))
        assert outcome.err == ""
        assert "standard input" in outcome.out
    script = f"true | {command} --for 1s".replace("python", sys.executable)
    outcome = run("-c", script, command=("bash",))
    assert "http://127.0.0.1:8000" in outcome.out


def test_a_saved_snapshot_is_shown_again(files: list[str], tmp_path: Path) -> None:
    """What `check --json` wrote is a report for people as well."""
    saved = tmp_path / "saved.json"
    saved.write_text(run_here("check", *files, "--json", *_SIZED).out)
    shown = run_here("check", *files, *_SIZED)
    assert run_here("check", str(saved)) == shown


def test_several_servers_are_watched_at_once() -> None:
    """Each has its verdict, and http is meant where an address has no scheme."""
    pair = (FIRST, SECOND)
    with (
        ReplayServer(pair, version="0.32.0") as first,
        ReplayServer(pair, version="0.32.0") as second,
        without_waiting(check),
    ):
        addresses = [server.url.removeprefix("http://") for server in (first, second)]
        outcome = run_here("check", *addresses, "--for=1m", *_SIZED)
    assert outcome.code == 0
    assert re.findall("^http.*$", outcome.out, re.MULTILINE) == [first.url, second.url]


def test_a_saved_text_is_a_side_of_a_comparison(files: list[str]) -> None:
    """Of a whole life, without a period."""
    outcome = run_here("compare", *files)
    assert outcome.err == ""
    assert f"B  {files[1]}: no period" in outcome.out
