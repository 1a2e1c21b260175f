"""`plan` on the command line: reports, JSON, exit codes and bad usage."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from plan import configs
from plan.configs import EAGLE3, LLAMA_70B
from support.commands import Outcome, run_here, wrong_refusals
from support.golden import golden_text
from vllm_specdec_exporter.economics.profiles import deployed
from vllm_specdec_exporter.economics.speculative_config import parse_speculation
from vllm_specdec_exporter.settings.configuration import load

HERE = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
SIZES = ("--target-params", "70B", "--draft-params", "8B")
H100 = ("--gpus", "2", "--gpu", "h100")
H200 = ("--gpus", "2", "--gpu", "h200")


def plan(*arguments: str) -> Outcome:
    return run_here("plan", *arguments)


def document_of(*arguments: str) -> Any:
    return json.loads(plan(*arguments, "--json").out)


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., str]:
    """Write a config.json; return its path."""

    def write(document: dict[str, Any], name: str = "config.json") -> str:
        path = tmp_path / name
        path.write_text(json.dumps(document), encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize(
    ("size", "gpus", "context"), [("8B", 1, None), ("70B", 4, None), ("8B", 1, 32_000)]
)
def test_gpu_is_the_hardware_that_serve_is_given(
    size: str, gpus: int, context: int | None
) -> None:
    """Steps cost what `--cost.hardware` and `--cost.model` say, for every batch size in
    the table.

    A context that is given counts as that of every request, for the cost as for the
    memory.
    """
    arguments = (
        "--target-params",
        size,
        "--gpu",
        "h100",
        "--gpus",
        str(gpus),
        "--method",
        "eagle3",
    )
    arguments += () if context is None else ("--context", str(context))
    document = document_of(*arguments, "--num-speculative-tokens", "3")
    spec = parse_speculation('{"method": "eagle3", "num_speculative_tokens": 3}')
    flags = {
        "cost.hardware": f"{gpus}xh100",
        "cost.model": size,
        "spec.config": spec.document,
    }
    profile = deployed(load(flags, {}).settings.costs, spec, "").at_context(context)
    costs = {row["batch"]: row["step_cost"] for row in document["speedup"]["rows"]}
    assert costs == {
        batch: pytest.approx(profile.step_cost(3, batch)) for batch in costs
    }
    assert len(costs) > 5


# --- reports

REPORTS: dict[str, str] = yaml.safe_load(
    Path(__file__).with_name("reports.yml").read_text("utf-8")
)


def words_of(name: str, config: Callable[..., str]) -> list[str]:
    arguments = shlex.split(REPORTS[name])
    return [
        config(getattr(configs, word), word) if hasattr(configs, word) else word
        for word in arguments
    ]


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_is_the_golden_file_and_the_json_says_the_same(
    name: str, config: Callable[..., str]
) -> None:
    """Every byte, every sentence, and one exit code.

    `UPDATE_GOLDEN=1 pytest tests/plan` writes the files anew; look at the difference.
    """
    arguments = words_of(name, config)
    outcome = plan(*arguments)
    text = outcome.out
    assert text == golden_text(HERE / f"{name}.txt", text)
    assert outcome.err == ""
    assert (
        max(
            len(line)
            for line in text.splitlines()
            if "--speculative-config" not in line
        )
        <= 100
    )

    document = document_of(*arguments)
    assert outcome.code == (1 if document["conclusion"] == "leave_off" else 0)
    flat = " ".join(text.split())
    items = [
        *document["checks"],
        *document["checklist"]["use"],
        *document["checklist"]["leave_off"],
    ]
    assert [item["text"] for item in items if item["text"] not in flat] == []
    assert document["reason"] in flat
    parsed = parse_speculation(json.dumps(document["speculative_config"]))
    assert parsed.num_speculative_tokens == document["num_speculative_tokens"]
    assert parsed.method == document["method"]


@pytest.mark.parametrize("change", [("--context", "4096"), ("--kv-precision", "fp8")])
def test_the_documented_ways_out_are_real(
    config: Callable[..., str], change: tuple[str, ...]
) -> None:
    """Shorter requests or a smaller cache make the documented batch fit."""
    document = document_of(*words_of("llama-70b-8b", config), *change)
    assert document["memory"]["after"]["fits"], change
    assert document["conclusion"] != "leave_off", change


@pytest.mark.parametrize(
    ("gpus", "usable", "before", "after"),
    [(H100, 144e9, 4e9, -12e9), (H200, 253.8e9, 113.8e9, 97.8e9)],
)
def test_the_published_arithmetic_is_in_the_json(
    gpus: tuple[str, ...], usable: float, before: float, after: float
) -> None:
    """70B + 8B in BF16 at 0.9: on two cards of 80 GB 4 GB and -12 GB, on two of 141 GB
    113.8 and 97.8.
    """
    memory = document_of(*SIZES, *gpus)["memory"]
    assert memory["target_weights_bytes"] == 140e9
    assert memory["draft_weights_bytes"] == 16e9
    assert memory["usable_bytes"] == pytest.approx(usable)
    assert memory["before"]["kv_budget_bytes"] == pytest.approx(before)
    assert memory["after"]["kv_budget_bytes"] == pytest.approx(after)


def test_what_is_told_of_the_traffic_can_speak_against_it() -> None:
    message = (
        ("--temperature", "0.9"),
        ("--objective", "ttft"),
        ("--monitored", "no"),
        ("--min-p-or-logit-bias", "yes"),
        ("--same-family", "no"),
        ("--same-tokenizer", "no"),
        ("--acceptance", "0.01", "--num-speculative-tokens", "8"),
    )
    assert [plan(*SIZES, *H200, *arguments).code for arguments in message] == [1] * len(
        message
    )
    assert plan(*SIZES, *H200, "--uniform-batch", "no").code == 0


def test_precisions_come_from_the_flag_then_from_the_file(
    config: Callable[..., str],
) -> None:
    path = config({**LLAMA_70B, "quantization_config": {"quant_method": "fp8"}})
    common = ("--target-config", path, "--draft-params", "8B", *H200)
    document = document_of(*common)
    assert document["target"]["precision"] == "fp8"
    # vLLM does not quantize the draft with the target
    assert document["draft"]["precision"] == "bf16"
    assert document["memory"]["kv_precision"] == "bf16"
    document = document_of(*common, "--target-precision=int4", "--draft-precision=fp8")
    assert document["target"]["precision"] == "int4"
    assert document["draft"]["precision"] == "fp8"


def test_a_head_given_by_its_file_weighs_as_the_estimate(
    config: Callable[..., str],
) -> None:
    """Its embeddings are the target's: 0.85 GB of the KV budget, not 2.5."""
    question = ("--target-config", config(configs.LLAMA_8B, "target.json"), "--gpu")
    eagle3 = (*question, "h100", "--method", "eagle3")
    by_file = document_of(*eagle3, "--draft-config", config(EAGLE3))
    assert by_file["draft"]["weights_bytes"] == pytest.approx(0.8494e9, rel=0.001)
    estimated = document_of(*eagle3)
    assert by_file["memory"]["after"] == estimated["memory"]["after"]
    assert by_file["speedup"] == estimated["speedup"]


# --- bad usage: one line that names the option, the value and what is allowed


def test_a_bad_config_is_named_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    arguments = ("--target-config", str(path), *H200)
    for content, message in (
        (b"\xff\xfe{}x", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "model_type is missing"),
        (b'{"model_type": "llama\\n\\u001b[31m"}', "is an architecture"),
    ):
        path.write_bytes(content)
        assert (
            wrong_refusals(
                "plan", [(arguments, f'--target-config "{path}"'), (arguments, message)]
            )
            == []
        ), message
        assert "\x1b" not in plan(*arguments).err, message


def test_a_quantization_that_is_not_understood_asks_for_the_precision(
    config: Callable[..., str],
) -> None:
    path = config({**LLAMA_70B, "quantization_config": {"quant_method": "novel"}})
    arguments = ("--target-config", path, "--draft-params", "8B", *H200)
    message = "quantization_config is not understood; give --target-precision"
    assert wrong_refusals("plan", [(arguments, message)]) == []
    assert plan(*arguments, "--target-precision", "int4").code == 0


def test_a_head_is_no_draft_model_and_no_target(config: Callable[..., str]) -> None:
    path = config(EAGLE3)
    for arguments, message in (
        (
            ("--target-params", "8B", "--draft-config", path),
            "--draft-config is a head of eagle3: add --method eagle3",
        ),
        (
            ("--target-params", "8B", "--method", "eagle", "--draft-config", path),
            "--draft-config is a head of eagle3: add --method eagle3",
        ),
        (
            ("--target-config", path, "--method", "ngram"),
            "--target-config is a head of eagle3, which drafts for a model",
        ),
    ):
        refused = ((*arguments, *H200), message)
        assert wrong_refusals("plan", [refused]) == []


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_size_and_a_config_exclude_each_other(
    config: Callable[..., str], role: str
) -> None:
    arguments = (*SIZES, *H200, f"--{role}-config", config(LLAMA_70B))
    refusal = f"--{role}-params and --{role}-config both have the size"
    assert wrong_refusals("plan", [(arguments, refusal)]) == []
