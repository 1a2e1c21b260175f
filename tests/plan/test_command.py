"""`plan` on the command line: reports, JSON, exit codes and bad usage."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plan.configs import DEEPSEEK_V3, GEMMA2_9B, LLAMA_8B, LLAMA_70B, MIXTRAL
from vllm_specdec_exporter import cli
from vllm_specdec_exporter.economics.profiles import deployed
from vllm_specdec_exporter.economics.speculative_config import parse_speculation
from vllm_specdec_exporter.serve.configuration import load

#: Runs `plan`; returns exit code, standard output and standard error.
Run = Callable[..., tuple[int, str, str]]

HERE = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
SIZES = ("--target-params", "70B", "--draft-params", "8B")
H100 = ("--gpus", "2", "--gpu", "h100")
H200 = ("--gpus", "2", "--gpu", "h200")
FACTS = (
    *("--temperature", "0.2", "--temperature", "0.3", "--objective", "tpot"),
    *("--same-family", "yes", "--same-tokenizer", "yes", "--uniform-batch", "yes"),
    *("--validated-at-temperature", "yes", "--monitored", "yes"),
)


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `plan` with these words; return exit code, standard output and standard error."""

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = cli.main(["plan", *words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., str]:
    """Write a config.json; return its path."""

    def write(document: dict[str, Any], name: str = "config.json") -> str:
        path = tmp_path / name
        path.write_text(json.dumps(document), encoding="utf-8")
        return str(path)

    return write


def test_gpu_is_the_hardware_that_serve_is_given(plan: Run) -> None:
    """Steps cost what `--cost.hardware` and `--cost.model` say, for every batch size in the table."""
    for size, gpus in (("8B", 1), ("70B", 4)):
        words = ("--target-params", size, "--gpu", "h100", "--gpus", str(gpus), "--method", "eagle3")
        document = json.loads(plan(*words, "--num-speculative-tokens", "3", "--json")[1])
        spec = parse_speculation('{"method": "eagle3", "num_speculative_tokens": 3}')
        flags = {"cost.hardware": f"{gpus}xh100", "cost.model": size, "spec.config": spec.document}
        profile = deployed(load(flags, {}).settings.costs, spec, "")
        assert profile.physical is not None
        costs = {row["batch"]: row["step_cost"] for row in document["speedup"]["rows"]}
        assert costs == {batch: pytest.approx(profile.step_cost(3, batch)) for batch in costs}
        assert len(costs) > 5


# --- reports

REPORTS = {
    "published-example": (*SIZES, *H100, "--context", "8192", "--batch", "32"),
    "published-example-fits": (*SIZES, *H200, *FACTS, "--acceptance", "0.7"),
    "llama-70b-8b": (
        *("--target-config", "LLAMA_70B", "--draft-config", "LLAMA_8B", *H200, *FACTS),
        *("--context", "8192", "--batch", "32", "--acceptance", "0.75", "--draft-model", "org/draft-8b"),
    ),
    "llama-70b-eagle3": ("--target-config", "LLAMA_70B", *H200, "--method", "eagle3", "--temperature", "1"),
    "mixtral-ngram": ("--target-config", "MIXTRAL", *H200, "--method", "ngram", *FACTS),
    "deepseek-mtp": (
        *("--target-config", "DEEPSEEK_V3", "--gpus", "8", "--gpu", "h200", "--method", "mtp"),
        *("--context", "16384", "--batch", "64", "--kv-precision", "fp8", *FACTS),
    ),
    "mlp-speculator": (*SIZES[:2], *H200, "--method", "mlp_speculator"),
    "gemma-heads-given": (
        *("--target-config", "GEMMA2_9B", "--draft-params", "300M", "--method", "eagle", *H100),
    ),
}
CONFIGS = {
    "LLAMA_70B": LLAMA_70B,
    "LLAMA_8B": LLAMA_8B,
    "MIXTRAL": MIXTRAL,
    "DEEPSEEK_V3": DEEPSEEK_V3,
    "GEMMA2_9B": GEMMA2_9B,
}


def words_of(name: str, config: Callable[..., str]) -> list[str]:
    return [config(CONFIGS[word], word) if word in CONFIGS else word for word in REPORTS[name]]


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_is_the_golden_file_and_the_json_says_the_same(
    name: str, plan: Run, config: Callable[..., str]
) -> None:
    """Every byte, every sentence, and one exit code.

    `UPDATE_GOLDEN=1 pytest tests/plan` writes the files anew; look at the difference.
    """
    words = words_of(name, config)
    code, text, err = plan(*words)
    path = HERE / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    assert err == ""
    assert max(len(line) for line in text.splitlines() if "--speculative-config" not in line) <= 100

    json_code, out, _ = plan(*words, "--json")
    document = json.loads(out)
    assert code == json_code == (1 if document["conclusion"] == "leave_off" else 0)
    flat = " ".join(text.split())
    items = [*document["checks"], *document["checklist"]["use"], *document["checklist"]["leave_off"]]
    assert [item["text"] for item in items if item["text"] not in flat] == []
    assert document["reason"] in flat
    parsed = parse_speculation(json.dumps(document["speculative_config"]))
    assert parsed.num_speculative_tokens == document["num_speculative_tokens"]
    assert parsed.method == document["method"]


def test_the_documented_example_is_real() -> None:
    """docs/plan.md shows the golden report of this very command, word for word."""
    page = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    assert (HERE / "llama-70b-8b.txt").read_text(encoding="utf-8") in page
    command = page.split("```sh\n")[1].split("```")[0].replace("\\\n", " ").split()
    files = {"70b/config.json": "LLAMA_70B", "8b/config.json": "LLAMA_8B"}
    assert tuple(files.get(word, word) for word in command[2:]) == REPORTS["llama-70b-8b"]


def test_the_documented_ways_out_are_real(plan: Run, config: Callable[..., str]) -> None:
    """Shorter requests or a smaller cache make the documented batch fit."""
    for change in (("--context", "4096"), ("--kv-precision", "fp8")):
        code, out, _ = plan(*words_of("llama-70b-8b", config), *change)
        assert (code, out.split()[0]) == (0, "USE"), change


def test_the_published_arithmetic_is_in_the_json(plan: Run) -> None:
    """70B + 8B in BF16 at 0.9: on two cards of 80 GB 4 GB and -12 GB, on two of 141 GB 113.8 and 97.8."""
    for gpus, usable, before, after in ((H100, 144e9, 4e9, -12e9), (H200, 253.8e9, 113.8e9, 97.8e9)):
        memory = json.loads(plan(*SIZES, *gpus, "--json")[1])["memory"]
        assert memory["target_weights_bytes"] == 140e9
        assert memory["draft_weights_bytes"] == 16e9
        assert memory["usable_bytes"] == pytest.approx(usable)
        assert memory["before"]["kv_budget_bytes"] == pytest.approx(before)
        assert memory["after"]["kv_budget_bytes"] == pytest.approx(after)


# --- exit codes


def test_the_exit_code_tells_whether_anything_speaks_against_it(plan: Run) -> None:
    lookup = ("--target-params", "70B", *H200, "--method")
    codes: dict[tuple[str, ...], int] = {
        (*SIZES, *H200): 0,
        (*SIZES, *H200, *FACTS): 0,
        (*SIZES, *H100): 1,
        (*SIZES, *H200, "--temperature", "0.9"): 1,
        (*SIZES, *H200, "--temperature", "0", "--temperature", "1"): 1,
        (*SIZES, *H200, "--objective", "ttft"): 1,
        (*SIZES, *H200, "--monitored", "no"): 1,
        (*SIZES, *H200, "--uniform-batch", "no"): 0,
        (*SIZES, *H200, "--same-family", "no"): 1,
        (*SIZES, *H200, "--same-tokenizer", "no"): 1,
        (*SIZES, *H200, "--acceptance", "0.05"): 1,
        ("--target-params", "8B", "--draft-params", "70B", "--gpu-memory", "1TB"): 1,
        **{(*lookup, method): 0 for method in ("ngram", "suffix", "medusa")},
    }
    assert {words: plan(*words)[0] for words in codes} == codes


# --- options


def test_precisions_come_from_the_flag_then_from_the_file(plan: Run, config: Callable[..., str]) -> None:
    path = config({**LLAMA_70B, "quantization_config": {"quant_method": "fp8"}})
    common = ("--target-config", path, "--draft-params", "8B", *H200, "--json")
    document = json.loads(plan(*common)[1])
    assert document["target"]["precision"] == "fp8"
    assert document["draft"]["precision"] == "bf16"  # vLLM does not quantize the draft with the target
    assert document["memory"]["kv_precision"] == "bf16"
    document = json.loads(plan(*common, "--target-precision", "int4", "--draft-precision", "fp8")[1])
    assert document["target"]["precision"] == "int4"
    assert document["draft"]["precision"] == "fp8"


def test_a_profile_can_be_named(plan: Run) -> None:
    for flag in ("--cost.profile", "--cost-profile"):
        document = json.loads(plan(*SIZES, *H200, flag, "chinchilla-70b-draft-4b", "--json")[1])
        assert document["speedup"]["profile"].startswith("chinchilla-70b-draft-4b"), flag


# --- bad usage: one line that names the option, the value and what is allowed


def assert_refused(outcome: tuple[int, str, str], *parts: str) -> None:
    code, out, err = outcome
    assert (code, out) == (2, "")
    assert err.startswith("vllm-specdec-exporter plan: error: ")
    assert err.count("\n") == 1
    assert [part for part in parts if part not in err] == [], err


#: Words beside the sizes and GPUs of a good plan, and parts of the line that refuses them.
BESIDE: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("--gpus", "0"), ('--gpus "0"', "from 1")),
    (("--gpu-memory-utilization", "1.1"), ('"1.1"', "at most 1")),
    (("--gpu-memory-utilization", "nan"), ('"nan"', "above 0")),
    (("--target-precision", "bf8"), ('--target-precision "bf8"', "bf16, fp16")),
    (("--draft-precision", "x"), ('--draft-precision "x"', "allowed: fp32")),
    (("--kv-precision", ""), ('--kv-precision ""', "allowed: fp32")),
    (("--context", "0"), ('--context "0"', "from 1")),
    (("--batch", "1.5"), ('--batch "1.5"', "a whole number")),
    (("--batch", "9" * 400), ("--batch", "a whole number")),
    (("--num-speculative-tokens", "0"), ('--num-speculative-tokens "0"', "1 to 256")),
    (("--acceptance", "60"), ('--acceptance "60"', "from 0 to 1")),
    (("--acceptance", "nan"), ('--acceptance "nan"', "from 0 to 1")),
    (("--temperature", "-1"), ("--temperature",)),
    (("--temperature", "warm"), ('--temperature "warm"',)),
    (("--monitored", "maybe"), ("--monitored", "maybe", "yes")),
    (("--objective", "fun"), ("--objective", "fun", "tpot")),
    (("--method", "magic"), ("--method", "magic", "eagle3")),
    (("--cost-profile", "none"), ("--cost-profile", "none", "ngram")),
    (("--unknown",), ("--unknown",)),
    (("--method", "ngram"), ('--draft-params "8B"', "ngram has no draft model")),
]
ALONE: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    ((), ("--target-params or --target-config is missing",)),
    (("--target-params", "70B"), ("--draft-params or --draft-config is missing",)),
    (SIZES, ("--gpu-memory is missing",)),
    (("--target-params", "0B", *H200), ('--target-params "0B"', "allowed: a number of parameters")),
    (("--target-params", "-70B", *H200), ("--target-params",)),
    (("--target-params", "70B", "--draft-params", "0", *H200), ('--draft-params "0"', "allowed")),
    ((*SIZES, "--gpu-memory", "80"), ('--gpu-memory "80"', "80GB (80e9 bytes)")),
    (
        ("--target-params", "70B", *H200, "--method", "suffix", "--draft-model", "x"),
        ('--draft-model "x"', "suffix has no draft model"),
    ),
    (("--target-params", "70B", "--target-config", "x", *H200), ("--target-params and --target-config",)),
    ((*SIZES, "--draft-config", "x", *H200), ("--draft-params and --draft-config",)),
    (("--target-config", "/nowhere/config.json"), ('"/nowhere/config.json"', "No such file")),
    (("--target-config", "/"), ("--target-config", "Is a directory")),
    (("--target-config", "a\0b"), ("--target-config", "cannot be read")),
    (("--target-config", "/dev/zero"), ("larger than 16 MiB",)),
]


def test_bad_usage_is_one_line(plan: Run) -> None:
    for words, parts in (*(((*SIZES, *H200, *words), parts) for words, parts in BESIDE), *ALONE):
        assert_refused(plan(*words), *parts)


def test_a_bad_config_is_named_in_one_line(tmp_path: Path, plan: Run) -> None:
    path = tmp_path / "config.json"
    for content, part in (
        (b"", "not JSON"),
        (b"\xff\xfe{}x", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "model_type is missing"),
        (b'{"model_type": "llama\\n\\u001b[31m"}', "is an architecture"),
    ):
        path.write_bytes(content)
        outcome = plan("--target-config", str(path), *H200)
        assert_refused(outcome, f'--target-config "{path}"', part)
        assert "\x1b" not in outcome[2]


def test_a_quantization_that_is_not_understood_asks_for_the_precision(
    plan: Run, config: Callable[..., str]
) -> None:
    path = config({**LLAMA_70B, "quantization_config": {"quant_method": "novel"}})
    words = ("--target-config", path, "--draft-params", "8B", *H200)
    assert_refused(plan(*words), "quantization_config is not understood; give --target-precision")
    assert plan(*words, "--target-precision", "int4")[0] == 0
