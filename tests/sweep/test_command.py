"""The command: bad usage, exit codes, files and words."""

import argparse
import asyncio
import json
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.certificates import Authority, server_side
from support.commands import Outcome, run_here, wrong_refusals
from support.programs import COMMAND, clean_environment
from sweep.fake import FakeServer
from sweep.records import names_in
from vllm_specdec_exporter.commands import sweep as command
from vllm_specdec_exporter.commands.sweep import SweepPlan
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.publish import plots

NOWHERE = "http://127.0.0.1:9"
QUICK = "--no-html --temperature 0,0.8 --requests 4 --max-tokens 20"


@pytest.fixture(autouse=True)
def _brief_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    def brief(**values: Any) -> SweepPlan:
        return SweepPlan(watch=0.1, **values)

    monkeypatch.setattr(command, "SweepPlan", brief)


async def sweep(url: str, flags: str = QUICK, *, out: Path | None = None) -> Outcome:
    """Run the command beside the loop that the fake server lives in."""
    arguments = shlex.split(flags)
    if out:
        arguments.append(f"--out={out}")
    return await asyncio.to_thread(run_here, "sweep", url, *arguments)


async def refusal(
    url: str, flags: str = QUICK, *, out: Path | None = None
) -> tuple[int, str]:
    """Run the command where it ends with an error; return its code and the one line."""
    outcome = await sweep(url, flags, out=out)
    assert outcome.out == ""
    begin, error, message = outcome.err.partition(
        "vllm-specdec-exporter sweep: error: "
    )
    assert begin == ""
    assert error == error
    assert message.count("\n") == 1
    assert "\x1b" not in message
    return outcome.code, message.removesuffix("\n")


def test_one_server_is_measured() -> None:
    several = {"VLLM_SPECDEC_EXPORTER_VLLM_URL": "http://a:1,http://b:1"}
    table = [([], "sweep measures one server; give one URL")]
    assert wrong_refusals("sweep", table, **several) == []


def test_prompts_may_have_spaces_after_their_commas() -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    plan = command.read_plan(parser.parse_args([NOWHERE, "--prompts", "code, chat"]))
    assert [prompts.name for prompts in plan.prompts] == ["code", "chat"]


def test_the_help_has_the_exit_code_of_an_interrupted_sweep() -> None:
    outcome = run_here("sweep", "--help")
    assert f"{command.INTERRUPTED} interrupted" in outcome.out


async def test_a_server_that_cannot_be_measured_is_one_line(
    server: FakeServer, tmp_path: Path
) -> None:
    no_port = f"{NOWHERE} cannot be measured: nothing listens at the address"
    assert await refusal(NOWHERE, out=tmp_path / "o") == (4, no_port)
    assert not (tmp_path / "o").exists()
    server.engine.running = 2
    code, message = await refusal(server.url)
    assert code == 1
    assert message.endswith("--allow-other-traffic measures all the same")
    server.engine.running = 0
    server.api = False
    no_api = "the server does not answer requests: HTTP 404 Not Found"
    assert await refusal(server.url) == (4, no_api)
    server.metrics_path = "/elsewhere"
    no_metrics = f"{server.url} cannot be measured: HTTP 404 Not Found"
    assert await refusal(server.url) == (4, no_metrics)


async def test_model_names_can_neither_break_a_line_nor_steer_the_terminal(
    server: FakeServer, tmp_path: Path
) -> None:
    server.models = ["fake-model", "other\x1b[31m\nmodel"]
    code, message = await refusal(server.url)
    assert code == 2
    assert "other" in message
    server.models = ["fake\x1b[31m-model"]
    outcome = await sweep(server.url, out=tmp_path / "o")
    assert "\x1b" not in outcome.out + outcome.err
    assert "[31m-model" in outcome.out


async def test_a_sweep_prints_a_table_and_writes_two_files(
    server: FakeServer, tmp_path: Path
) -> None:
    out = tmp_path / "o"
    grid = "--prompts code,chat --temperature 0.8,0,0.0 --requests 4 --max-tokens 20"
    outcome = await sweep(server.url, grid, out=out)
    rows = [
        line.split()
        for line in outcome.out.splitlines()
        if line.startswith(("code ", "chat "))
    ]
    assert outcome.code == 0
    assert [" ".join(row[:4]) for row in rows] == [
        "code 1 0.8 0.50",
        "code 1 0.0 0.75",
        "chat 1 0.8 0.50",
        "chat 1 0.0 0.75",
    ]
    assert "code: acceptance falls from 0.75 at 0.0 to 0.50 at 0.8\n" in outcome.out
    assert names_in(out) == {"sweep.json", "report.html"}
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert "\x1b" not in outcome.err
    assert "[3/4] chat, temperature 0.8, concurrency 1: acceptance 0.50" in outcome.err
    assert outcome.err.splitlines()[-1] == f"written to {out}: sweep.json, report.html"


async def test_json_is_all_that_is_printed_and_a_second_sweep_needs_a_new_directory(
    server: FakeServer, tmp_path: Path
) -> None:
    json_alone = f"{QUICK} --json --quiet"
    outcome = await sweep(server.url, json_alone, out=tmp_path)
    assert outcome.code == 0
    assert outcome.err == ""
    cells = json.loads(outcome.out)["cells"]
    assert [cell["acceptance_ratio"] for cell in cells] == [0.75, 0.5]
    assert names_in(tmp_path) == {"sweep.json"}
    written = (tmp_path / "sweep.json").read_bytes()
    sent = len(server.measured)
    code, message = await refusal(server.url, json_alone, out=tmp_path)
    assert code == 2
    assert "has a sweep.json already; choose another directory" in message
    assert (tmp_path / "sweep.json").read_bytes() == written
    assert len(server.measured) == sent


async def test_without_out_a_new_directory_says_when(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (await sweep(server.url)).code == 0
    (made,) = names_in(tmp_path)
    assert re.fullmatch(r"sweep-\d{8}-\d{6}", made)
    assert names_in(tmp_path / made) == {"sweep.json"}


async def test_disturbed_cells_are_1(server: FakeServer, tmp_path: Path) -> None:
    server.other_tokens_per_request = 5
    outcome = await sweep(server.url, out=tmp_path)
    assert outcome.code == 1
    assert "  disturbed\n" in outcome.out
    last = outcome.err.splitlines()[-1]
    assert last.startswith(
        "stopped: other traffic disturbed chat, temperature 0, concurrency 1: the "
        "counters"
    )
    assert last.endswith(f"; 1 of 2 cells are in {tmp_path}")


async def test_headers_and_the_key_reach_the_server_and_no_file(
    server: FakeServer, tmp_path: Path
) -> None:
    server.api_key = "s3cret"
    key = tmp_path / "key"
    out = tmp_path / "o"
    key.write_text("s3cret")
    access = f"--api-key-file {key} --vllm.header 'X-Team: hush' --quiet"
    outcome = await sweep(server.url, f"{QUICK} {access}", out=out)
    message = (
        outcome.out + outcome.err + "".join(path.read_text() for path in out.iterdir())
    )
    assert outcome.code == 0
    assert "s3cret" not in message
    assert "hush" not in message


async def test_https_takes_a_certificate_of_ones_own_and_a_unix_socket_will_do(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path, "ours")
    fake = FakeServer()
    fake.tls = server_side(authority.issue("127.0.0.1"))
    async with fake:
        out = tmp_path / "o"
        code, message = await refusal(fake.url, out=out)
        assert code == 4
        assert "no trusted TLS connection" in message
        trusting = f"{QUICK} --vllm.ca-file {authority.file}"
        assert (await sweep(fake.url, trusting, out=out)).code == 0
    fake = FakeServer()
    fake.socket = str(tmp_path / "s")
    async with fake:
        assert (await sweep(fake.url, out=tmp_path / "o2")).code == 0
    assert fake.measured


async def test_a_missing_matplotlib_is_told_before_anything_is_measured(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ConfigError("plots need matplotlib")

    monkeypatch.setattr(plots, "require", missing)
    missing_plots = "plots need matplotlib (or give --no-html)"
    assert await refusal(server.url, "") == (2, missing_plots)
    assert server.paths == []


async def test_ctrl_c_reports_what_is_measured(
    server: FakeServer, tmp_path: Path
) -> None:
    out = tmp_path / "o"
    hanging = asyncio.Event()

    async def hang(count: int, _body: dict[str, Any]) -> None:
        if count >= 6:
            hanging.set()
            await asyncio.sleep(240)

    server.on_request = hang
    command_line = f"sweep {server.url} --out {out} {QUICK}".split()
    process = await asyncio.create_subprocess_exec(
        COMMAND,
        *command_line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    await asyncio.wait_for(hanging.wait(), 120)
    process.send_signal(signal.SIGINT)
    shown, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 130
    assert (
        err.decode().splitlines()[-1]
        == f"stopped: interrupted; 1 of 2 cells are in {out}"
    )
    assert b"Traceback" not in err
    assert b"acceptance is 0.75 at 0.0" in shown
    assert len(json.loads((out / "sweep.json").read_text())["cells"]) == 1
