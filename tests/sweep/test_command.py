"""The command: bad usage, exit codes, files and words."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from support.certificates import Authority, server_side
from support.programs import COMMAND, clean_environment
from sweep.fake import FakeServer
from sweep.records import names_in
from vllm_specdec_exporter import cli, plots
from vllm_specdec_exporter.options import ConfigError
from vllm_specdec_exporter.simulator.server import SimulatorServer
from vllm_specdec_exporter.sweep import SweepPlan, arguments, load_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NOWHERE = "http://127.0.0.1:9"
QUICK = ("--temperature", "0,0.8", "--requests", "4", "--max-tokens", "20")


@pytest.fixture(autouse=True)
def _brief_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    def brief(**values: Any) -> SweepPlan:
        return SweepPlan(watch=0.2, **values)

    monkeypatch.setattr(arguments, "SweepPlan", brief)
    for name in tuple(os.environ):
        if name.startswith("VLLM_SPECDEC_EXPORTER_"):
            monkeypatch.delenv(name)


async def sweep(*words: str) -> int:
    """Run the command beside the loop that the fake server lives in."""

    def main() -> int:
        try:
            return cli.main(["sweep", *words])
        except SystemExit as error:  # argparse
            return int(error.code or 0)

    return await asyncio.to_thread(main)


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        yield server


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--temperature", "hot"], 'argument --temperature: "hot": allowed: temperatures from 0 to 2'),
        (["--temperature", "0,,1"], 'argument --temperature: "": allowed: temperatures'),
        (["--temperature", "2.1"], 'argument --temperature: "2.1": allowed'),
        (["--temperature", "nan"], 'argument --temperature: "nan": allowed'),
        (["--temperature", "0,0.0"], 'argument --temperature: "0,0.0": allowed: each value once'),
        (["--temperature=-1"], 'argument --temperature: "-1": allowed'),
        (["--concurrency", "0"], 'argument --concurrency: "0": allowed: a whole number from 1 to 4096'),
        (["--concurrency", "1.5"], 'argument --concurrency: "1.5": allowed: a whole number'),
        (["--requests", "0"], 'argument --requests: "0": allowed: a whole number from 1'),
        (["--requests", "9" * 5000], "argument --requests: "),
        (["--max-tokens", "many"], 'argument --max-tokens: "many": allowed: a whole number from 1'),
        (["--seed=-1"], 'argument --seed: "-1": allowed: a whole number from 0'),
        (["--top-p", "0"], 'argument --top-p: "0": allowed: a number above 0, at most 1'),
        (["--request-timeout", "30"], 'argument --request-timeout: "30": allowed: a duration needs a unit'),
        (["--max-duration", "0s"], 'argument --max-duration: "0s": allowed: at least 1s'),
        (["--api", "grpc"], "argument --api: invalid choice: 'grpc'"),
        (["--api-key-file", "/no/such"], 'argument --api-key-file: "/no/such" cannot be read: No such file'),
        (["--header", "broken"], 'argument --header: <secret>: allowed: Name: value'),
        (["--prompts", "poetry"], '--prompts "poetry": cannot be read: No such file or directory; built in'),
        (["--prompts", "code", "--prompts", "code"], '--prompts: "code" is there twice'),
        (["--zone-disable-below", "0.7"], "--zone-disable-below 0.7 and --zone-benefit-above 0.65: allowed"),
        (["--zone-benefit-above", "7"], 'argument --zone-benefit-above: "7": allowed: a number from 0 to 1'),
        (["--vllm.insecure-skip-verify", "maybe"], '--vllm.insecure-skip-verify "maybe": allowed: true'),
        (["--vllm.cert-file", "/dev/null"], "--vllm.cert-file and --vllm.key-file go together"),
        (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
    ],
)  # fmt: skip
async def test_bad_usage_is_one_line_and_2(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await sweep(NOWHERE, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith(f"vllm-specdec-exporter sweep: error: {told}")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nonsense", 'URL "nonsense": not an address; allowed: http://host:port'),
        ("http://user:geheim@host:x", 'URL "http://<secret>@host:x": not an address'),
    ],
)
async def test_a_bad_address_is_one_line_and_2(
    url: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await sweep(url) == 2
    assert told in capsys.readouterr().err


async def test_several_servers_in_the_environment_are_too_many(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_SPECDEC_EXPORTER_VLLM_URL", "http://a:1,http://b:1")
    assert await sweep() == 2
    assert "sweep measures one server; give one URL" in capsys.readouterr().err


async def test_a_server_that_cannot_be_reached_is_4(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert await sweep(NOWHERE, "--out", str(tmp_path / "o")) == 4
    assert capsys.readouterr().err == (
        f"vllm-specdec-exporter sweep: error: {NOWHERE} cannot be reached: nothing listens at the address\n"
    )
    assert not (tmp_path / "o").exists()


async def test_metrics_without_an_endpoint_are_4(capsys: pytest.CaptureFixture[str]) -> None:
    """The project's own simulator has the metrics of a vLLM and nothing behind them."""
    async with SimulatorServer() as simulator:
        assert await sweep(simulator.url) == 4
        told = f"{simulator.url} answers, but is no OpenAI endpoint: GET /v1/models: HTTP 404 Not Found"
        assert told in capsys.readouterr().err


async def test_an_endpoint_without_metrics_is_4(fake: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    fake.metrics_path = "/elsewhere"
    assert await sweep(fake.url) == 4
    assert f"{fake.url} has no vLLM metrics: HTTP 404 Not Found" in capsys.readouterr().err


async def test_model_names_cannot_break_the_one_line_of_an_error(
    fake: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.models = ["fake-model", "other\x1b[31m\nmodel"]
    assert await sweep(fake.url) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert "other" in err


async def test_a_model_name_cannot_steer_the_terminal(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.models = ["fake\x1b[31m-model"]
    await sweep(fake.url, "--out", str(tmp_path / "o"), "--no-html", *QUICK)
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "[31m-model" in out


async def test_a_sweep_prints_a_table_and_writes_three_files(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o"
    assert await sweep(fake.url, "--out", str(out), "--prompts", "code,chat", *QUICK) == 0
    printed, err = capsys.readouterr()
    rows = [line.split() for line in printed.splitlines() if line.startswith(("code ", "chat "))]
    assert [row[:4] for row in rows] == [
        ["code", "1", "0.0", "0.75"],
        ["code", "1", "0.8", "0.50"],
        ["chat", "1", "0.0", "0.75"],
        ["chat", "1", "0.8", "0.50"],
    ]
    assert "code: acceptance falls from .75 at 0.0 to .50 at 0.8; at 0.8 it leaves the zone" in printed
    assert names_in(out) == {"sweep.json", "sweep.csv", "report.html"}
    assert len((out / "sweep.csv").read_text().splitlines()) == 5
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert "\x1b" not in err
    assert "[4/4] chat, temperature 0.8, concurrency 1: acceptance 0.50" in err
    assert err.splitlines()[-1] == f"written to {out}: sweep.json, sweep.csv, report.html"


async def test_json_is_all_that_is_printed_and_quiet_is_quiet(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await sweep(fake.url, "--out", str(tmp_path), *QUICK, "--json", "--quiet", "--no-html") == 0
    printed, err = capsys.readouterr()
    assert err == ""
    document = json.loads(printed)
    assert [cell["acceptance_ratio"] for cell in document["cells"]] == [0.75, 0.5]
    assert [cell["zone"] for cell in document["cells"]] == ["likely benefit", "near break-even"]
    assert names_in(tmp_path) == {"sweep.json", "sweep.csv"}


async def test_bounds_of_the_zones_can_be_moved_over_what_was_measured(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [fake.url, "--out", str(tmp_path), *QUICK, "--json", "--quiet", "--no-html"]
    await sweep(*words)
    sent = len(fake.bodies)
    capsys.readouterr()
    assert await sweep(*words, "--zone-disable-below", "0.2", "--zone-benefit-above", "0.4") == 0
    document = json.loads(capsys.readouterr().out)
    assert [cell["zone"] for cell in document["cells"]] == ["likely benefit"] * 2
    assert len(fake.bodies) == sent


async def test_without_out_a_new_directory_says_when(
    fake: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert await sweep(fake.url, "--no-html", *QUICK) == 0
    (made,) = names_in(tmp_path)
    assert re.fullmatch(r"sweep-\d{8}-\d{6}", made)
    assert load_record(tmp_path / made) is not None


async def test_failed_and_disturbed_cells_are_1_and_the_way_on_is_told(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.other_tokens_per_request = 5
    assert await sweep(fake.url, "--out", str(tmp_path), "--no-html", *QUICK) == 1
    printed, err = capsys.readouterr()
    assert "likely benefit, disturbed" in printed
    last = err.splitlines()[-1]
    assert last.startswith(
        "stopped: other traffic disturbed chat, temperature 0, concurrency 1: the counters"
    )
    assert last.endswith(f"0 of 2 cells are kept in {tmp_path}; the same command with --out {tmp_path} "
                         "goes on from there")  # fmt: skip
    fake.other_tokens_per_request = 0
    assert await sweep(fake.url, "--out", str(tmp_path), "--no-html", *QUICK) == 0


async def test_other_traffic_is_1_and_one_line(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.engine.running = 2
    assert await sweep(fake.url, "--out", str(tmp_path / "o"), *QUICK) == 1
    err = re.sub(r"within \d+\.\d s", "within N s", capsys.readouterr().err)  # as long as two scrapes took
    assert err == (
        f"vllm-specdec-exporter sweep: error: others use {fake.url}: 2 requests running, 0 waiting, 0 tokens "
        "generated within N s; --allow-other-traffic measures all the same\n"
    )


async def test_headers_and_the_key_reach_the_server_and_no_file(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.api_key = "s3cret"
    key = tmp_path / "key"
    key.write_text("s3cret")
    words = ("--api-key-file", str(key), "--header", "X-Team: hush", "--quiet")
    assert await sweep(fake.url, "--out", str(tmp_path / "o"), *QUICK, *words) == 0
    told = "".join(capsys.readouterr())
    for path in (tmp_path / "o").iterdir():
        told += path.read_text()
    assert "s3cret" not in told
    assert "hush" not in told


async def test_https_takes_a_certificate_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path, "ours")
    fake = FakeServer()
    fake.tls = server_side(authority.issue("127.0.0.1"))
    async with fake:
        words = (fake.url, "--out", str(tmp_path / "o"), "--no-html", *QUICK)
        assert await sweep(*words) == 4
        assert "no trusted TLS connection" in capsys.readouterr().err
        assert await sweep(*words, "--vllm.ca-file", str(authority.file)) == 0


async def test_a_unix_socket_will_do(tmp_path: Path) -> None:
    fake = FakeServer()
    fake.socket = str(tmp_path / "s")
    async with fake:
        assert await sweep(fake.url, "--out", str(tmp_path / "o"), "--no-html", *QUICK) == 0
    assert fake.measured


async def test_a_missing_matplotlib_is_told_before_anything_is_measured(
    fake: FakeServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ConfigError("plots need matplotlib")

    monkeypatch.setattr(plots, "require", missing)
    assert await sweep(fake.url, *QUICK) == 2
    assert "plots need matplotlib (or give --no-html)" in capsys.readouterr().err
    assert fake.paths == []


def test_ctrl_c_keeps_what_is_measured_and_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "o"

    async def scenario() -> tuple[int, str]:
        async with FakeServer() as fake:
            hanging = asyncio.Event()

            async def hang(count: int, _body: dict[str, Any]) -> None:
                if count >= 6:
                    hanging.set()
                    await asyncio.sleep(30)

            fake.on_request = hang
            process = await asyncio.create_subprocess_exec(
                COMMAND, "sweep", fake.url, "--out", str(out), *QUICK,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(),
            )  # fmt: skip
            await asyncio.wait_for(hanging.wait(), 30)
            process.send_signal(signal.SIGINT)
            _, err = await asyncio.wait_for(process.communicate(), 20)
            return process.returncode or 0, err.decode()

    code, err = asyncio.run(scenario())
    assert code == 130
    assert err.splitlines()[-1] == (
        f"interrupted; 1 of 2 cells are kept in {out}; the same command with --out {out} goes on from there"
    )
    assert "Traceback" not in err
    kept = load_record(out)
    assert kept is not None
    assert len(kept.cells) == 1
    assert names_in(out) == {"sweep.json", "sweep.csv", "report.html"}
