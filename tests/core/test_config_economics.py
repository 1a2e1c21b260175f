"""The options of cost and baseline: what they become, and one line for each that cannot
be used.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from baseline.recordings import baseline, bucket
from plan.configs import LLAMA_8B
from support.builders import refusal
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.baseline import encode
from vllm_specdec_exporter.economics.cost import Basis, thresholds_for
from vllm_specdec_exporter.economics.profiles import BUILTIN, deployed, fit
from vllm_specdec_exporter.engines import ENGINE_OF
from vllm_specdec_exporter.judgement.explanation import how_to_know
from vllm_specdec_exporter.observe.settings import Settings
from vllm_specdec_exporter.settings.configuration import load

ONE = "profiles: {mine: {target: {fixed: 7.0}, draft: {per_position: 1.0}}}\n"
TWO = """
profiles:
  first: {methods: [eagle], target: {fixed: 7.0}}
  second: {methods: [ngram], target: {fixed: 8.0}, cheap: true}
"""


def spec(**config: object) -> str:
    return json.dumps(config)


def settings(flags: dict[str, Any]) -> Settings:
    return load(flags, {}).settings


def refused(flags: dict[str, Any]) -> str:
    """The line that refuses these flags."""
    return refusal(ConfigError, load, flags, {})


class TestProfile:
    def test_auto_goes_by_the_method(self) -> None:
        """The profile and its thresholds are those of the method that the speculative
        config names.
        """
        for named, k, name, usual in (
            ({"method": "ngram"}, 4, "ngram", 1.5),
            ({"method": "deepseek_mtp"}, 1, "mtp", 1.0),
            ({"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}, 3, "eagle3", 2.0),
            ({"model": "some/draft-1B"}, 3, "unknown", 1.0),
        ):
            config = spec(**named, num_speculative_tokens=k)
            chosen = settings({"spec.config": config})
            assert chosen.costs.profile == BUILTIN[name], named
            assert chosen.thresholds == thresholds_for(BUILTIN[name], k, name), named
            assert chosen.thresholds.usual_mean_acceptance_length == usual, named
            assert (
                settings({"spec.config": config, "cost.profile": "auto"}) == chosen
            ), named

    def test_a_profile_that_does_not_exist_is_refused_with_all_that_do(
        self, tmp_path: Path
    ) -> None:
        """Those of the file included."""
        path = tmp_path / "cost.yml"
        path.write_text(TWO)
        message = refused({"cost.file": str(path), "cost.profile": "egale"})

        assert message.startswith(
            '--cost.profile "egale": no such profile; known: auto, ngram, '
        )
        assert message.endswith("first, second")
        assert [name for name in BUILTIN if name not in message] == []


class TestHardware:
    """--cost.hardware and --cost.model."""

    def test_the_model_by_size_or_config(self, tmp_path: Path) -> None:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(LLAMA_8B))
        for text, layers, kv_bytes in (
            ("8B", 32, 2),
            ("8B:fp8,layers=40,kv=fp8", 40, 1),
            (str(file), 32, 2),
            (f"{file},kv=fp8", 32, 1),
        ):
            hardware = settings(
                {"cost.hardware": "2xh100", "cost.model": text}
            ).costs.hardware
            assert hardware is not None, text
            assert hardware.target is not None, text
            assert (hardware.name, hardware.machine.count) == ("2xh100", 2), text
            assert (hardware.target.layers, hardware.target.kv_bytes) == (
                layers,
                kv_bytes,
            ), text

    def test_what_cannot_be_used_is_refused(self, tmp_path: Path) -> None:
        unknown = tmp_path / "unknown.json"
        quantized = tmp_path / "quantized.json"
        unknown.write_text(json.dumps({**LLAMA_8B, "model_type": "mamba"}))
        quantized.write_text(
            json.dumps({**LLAMA_8B, "quantization_config": {"quant_method": "new"}})
        )
        for flags, reason in (
            ({"cost.hardware": "h101"}, "known: "),
            ({"cost.model": "8B"}, "--cost.hardware is missing"),
            (
                {"cost.hardware": "h100", "cost.profile": "eagle3"},
                "give one of the two",
            ),
            (
                {"cost.hardware": "h100", "cost.model": "big"},
                "allowed: a number of parameters",
            ),
            (
                {"cost.hardware": "h100", "cost.model": "8B,layers=x"},
                "whole numbers from 1 up",
            ),
            ({"cost.hardware": "h100", "cost.model": str(unknown)}, "mamba"),
            (
                {"cost.hardware": "h100", "cost.model": str(quantized)},
                "give the size instead",
            ),
            (
                {"cost.hardware": "h100", "cost.model": f"{tmp_path}/none.json"},
                "cannot be read",
            ),
        ):
            assert reason in refused(flags), flags

    def test_what_is_advised_to_find_out_was_not_given_yet(
        self, tmp_path: Path
    ) -> None:
        """The hardware alone does not price a step if the size of the model or the
        drafter is not known.
        """
        hardware = {"cost.hardware": "h100"}
        sized = {"cost.hardware": "h100", "cost.model": "8B"}
        file = {"cost.file": str(tmp_path / "cost.yml")}
        (tmp_path / "cost.yml").write_text(ONE)
        for flags, method, first in (
            ({}, "eagle", "give --cost.hardware, run"),
            (hardware, "eagle", "give --cost.model, run"),
            (sized, None, "give --spec.config, run"),
            (sized, "", "give its method in --spec.config, run"),
            (sized, "draft_model", "give --cost.draft-size-ratio, run"),
            (sized, "eagle", "run"),
            (sized, "new", "run"),
            ({**file, **hardware}, "eagle", "run"),
        ):
            config = {} if method is None else {"spec.config": spec(method=method)}
            chosen = settings({**flags, **config})
            profile = deployed(chosen.costs, chosen.speculation, "a-model")
            said = how_to_know(Basis.MODELLED, profile, ENGINE_OF["vllm-v1"])
            assert said.startswith(f"{first} history "), flags
            # The cheapest way first.
            assert said.index("history") < said.index("compare") < said.index("calib")
            outside = how_to_know(Basis.MODELLED, profile, ENGINE_OF["llamacpp"])
            assert outside.startswith(f"{first} calibrate "), flags
        assert (
            how_to_know(Basis.MEASURED, profile, ENGINE_OF["vllm-v1"])
            == "measure for longer, or record the baseline for longer (--append)"
        )


class TestFile:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "cost.yml"

    def test_which_profile_counts(self, path: Path) -> None:
        """One profile in the file needs no name; of several the method's counts, else
        the shipped one.
        """
        taken = (
            "profiles: {eagle: {target: {fixed: 7.0}}, other: {target: {fixed: 1.0}}}"
        )
        for text, flags, name, fixed in (
            (ONE, {"spec.config": spec(method="ngram")}, "mine", 7.0),
            (TWO, {"spec.config": spec(method="eagle")}, "first", 7.0),
            (
                TWO,
                {"spec.config": spec(method="medusa")},
                "medusa",
                BUILTIN["medusa"].target.fixed,
            ),
            (
                TWO,
                {"spec.config": spec(method="")},
                "unknown",
                BUILTIN["unknown"].target.fixed,
            ),
            (TWO, {"cost.profile": "first"}, "first", 7.0),
            (TWO, {"cost.profile": "eagle3"}, "eagle3", BUILTIN["eagle3"].target.fixed),
            (taken, {"cost.profile": "eagle"}, "eagle", 7.0),
        ):
            path.write_text(text)
            profile = settings({"cost.file": str(path), **flags}).costs.profile
            assert (profile.name, profile.target.fixed) == (name, fixed), flags

    def test_a_method_that_the_server_prints_is_that_of_the_profile(
        self, path: Path
    ) -> None:
        """Unless a method is given, a profile is named, or the file has one without a
        method.
        """
        hardware = {"cost.hardware": "h100", "cost.model": "8B"}
        for text, flags, name in (
            (None, {}, "eagle"),
            (None, hardware, "h100, eagle"),
            (TWO, {}, "first"),
            (TWO, hardware, "first"),
            (ONE, {}, "mine"),
            (None, {"cost.profile": "unknown"}, "unknown"),
            (None, {"spec.config": spec(method="medusa")}, "medusa"),
            (None, {"spec.config": spec(method="mine")}, "unknown"),
        ):
            if text:
                path.write_text(text)
            chosen = settings({**flags, **({"cost.file": str(path)} if text else {})})
            profile = deployed(chosen.costs, chosen.speculation, "m", printed="eagle")
            assert profile.name == name, (text, flags)

    def test_a_cheap_profile_of_the_operators_has_its_own_break_even(
        self, path: Path
    ) -> None:
        """Where drafting costs by size, break-even counts that part too, as the
        estimate does.
        """
        path.write_text(TWO)
        config = spec(method="ngram", num_speculative_tokens=4)
        chosen = settings({"cost.file": str(path), "spec.config": config})
        assert (
            chosen.thresholds
            == thresholds_for(chosen.costs.profile, 4, "ngram")
            != Thresholds()
        )

        path.write_text(
            "profiles: {mine: {cheap: true, size_ratio: 0.1, target: {fixed: 1.0}, "
            "draft: {per_position_of_size: 1.0}}}"
        )
        chosen = settings(
            {"cost.file": str(path), "spec.config": spec(num_speculative_tokens=3)}
        )
        assert fit(chosen.costs.profile, None).step_cost(3, 1) == pytest.approx(1.3)
        assert chosen.thresholds.poor_mean_acceptance_length == pytest.approx(1.3)

    def test_what_cannot_be_used_is_one_line_with_the_option_and_the_file(
        self, path: Path
    ) -> None:
        """A name, key or value with a line break does not break the message."""
        for text, message in (
            ("", "a mapping with the one key profiles is expected"),
            (
                "profiles: {a: {}}",
                "profile a: target is missing; its key fixed is the time of a step",
            ),
            ("profiles: {a", "not YAML: "),
            (
                'profiles: {"two\\nlines": {target: {fixed: 0}}}',
                "'two\\nlines' is no name for a profile",
            ),
            ('profiles: {a: {target: {fixed: 1}, "two\\nlines": 1}}', "profile a"),
            ('profiles: {a: {target: {fixed: "two\\nlines"}}}', "profile a"),
        ):
            path.write_text(text)
            said = refused({"cost.file": str(path)})
            assert said.startswith(f'--cost.file "{path}": {message}'), text
            assert "\n" not in said, text
        for option in ("cost.file", "baseline.file"):
            assert refused({option: "/no/such/file"}) == (
                f'--{option} "/no/such/file": cannot be read: No such file or directory'
            ), option


class TestSizes:
    def test_the_draft_models_size_is_a_share_or_a_relation(self) -> None:
        sizes = {"0.11": 0.11, "1:9": 1 / 9, "1": 1.0, "1:1": 1.0, "0.5:7": 1 / 14}
        ratios = {
            text: settings({"cost.draft-size-ratio": text}).costs.size_ratio
            for text in sizes
        }

        assert ratios == pytest.approx(sizes)

    def test_memory_has_a_unit_decimal_or_binary(self) -> None:
        for draft, gpu, ratio in (
            ("16GB", "160GB", 0.1),
            ("16GiB", "16GiB", 1.0),
            ("1024 MiB", "10GiB", 0.1),
            ("500MB", "0.08TB", 0.00625),
            ("1gb", "80Gb", 0.0125),
        ):
            costs = settings({"cost.draft-memory": draft, "cost.gpu-memory": gpu})
            assert costs.memory_ratio == pytest.approx(ratio), (draft, gpu)

    def test_anything_else_is_refused_with_what_is_allowed(self) -> None:
        memory = (
            "memory with its unit, such as 80GB (80e9 bytes) or 80GiB (80 x 2^30), "
            "0.1GB to 100TB"
        )
        allowed = {
            "cost.draft-size-ratio": (
                "a number above 0 and at most 1, such as 0.11 or 1:9"
            ),
            "cost.draft-memory": memory,
            "cost.gpu-memory": memory,
        }
        bad = {
            "cost.draft-size-ratio": (
                "0",
                "-1",
                "9:1",
                "1:0",
                "",
                "1:x",
                "nan",
                "inf",
                "1:9:2",
                "10%",
            ),
            "cost.draft-memory": ("16", "GB", "0GB", "-1GB", "16 XB", "", "1e3GB"),
            "cost.gpu-memory": ("16",),
        }
        for option, texts in bad.items():
            for text in texts:
                message = f'--{option} "{text}": allowed: {allowed[option]}'
                assert refused({option: text}) == message, (option, text)

    def test_the_share_of_memory_needs_both_and_a_draft_model_that_fits(self) -> None:
        """Both options and values are named."""
        for option in ("cost.draft-memory", "cost.gpu-memory"):
            assert (
                refused({option: "16GB"})
                == "--cost.draft-memory and --cost.gpu-memory go together"
            ), option
        assert refused({"cost.draft-memory": "200GB", "cost.gpu-memory": "160GB"}) == (
            "--cost.draft-memory: 2e+11 bytes exceed the 1.6e+11 of --cost.gpu-memory"
        )


def test_the_files_baseline_is_what_the_pipeline_compares_with(tmp_path: Path) -> None:
    """What cannot be used is refused in one line with the option, the file and what is
    wrong.
    """
    path = tmp_path / "baseline.json"
    good = baseline(bucket(1.0, 0.1), bucket(3.0, 0.2))
    path.write_bytes(encode(good))
    assert settings({"baseline.file": str(path)}).baseline == good

    path.write_bytes(b"")
    message = refused({"baseline.file": str(path)})
    reason = "not JSON: Input data was truncated"
    assert message == f'--baseline.file "{path}": {reason}'


def test_the_operators_thresholds_beat_the_methods() -> None:
    """Beside defaults that fit the method; a value that contradicts those is refused
    with both numbers.
    """
    limits = {"poor_acceptance_ratio": 0.05, "advice_minimum_drafts": 50}
    pairs = [f"{name}={value}" for name, value in limits.items()]
    chosen = settings(
        {
            "spec.config": spec(method="eagle", num_speculative_tokens=5),
            "threshold": pairs,
        }
    )
    assert chosen.thresholds == thresholds_for(
        BUILTIN["eagle"], 5, "eagle"
    ).with_values(limits)

    config = spec(method="ngram", num_speculative_tokens=4)
    pairs = ["poor_acceptance_ratio=0.35"]
    message = refused({"spec.config": config, "threshold": pairs})
    healthy = thresholds_for(BUILTIN["ngram"], 4).healthy_acceptance_ratio
    assert message == (
        "--threshold: threshold poor_acceptance_ratio (0.35) exceeds "
        f"healthy_acceptance_ratio ({healthy:g}); "
        "thresholds that are not set come from the break-even of ngram at K=4, one "
        "request"
    )
