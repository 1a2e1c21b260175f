"""The options of cost and baseline: what they become, and one line for each that cannot be used."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from baseline.recordings import baseline, bucket
from vllm_specdec_exporter.baseline import encode
from vllm_specdec_exporter.config import load
from vllm_specdec_exporter.economics import BUILTIN
from vllm_specdec_exporter.economics.criteria import thresholds_for
from vllm_specdec_exporter.economics.profiles import fit
from vllm_specdec_exporter.options import ConfigError
from vllm_specdec_exporter.thresholds import Thresholds

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_specdec_exporter.config import Config

ONE = "profiles: {mine: {target: {fixed: 7.0}, draft: {per_position: 1.0}}}\n"
TWO = """
profiles:
  first: {methods: [eagle], target: {fixed: 7.0}}
  second: {methods: [ngram], target: {fixed: 8.0}, cheap: true}
"""


def spec(**config: object) -> str:
    return json.dumps(config)


def refused(flags: dict[str, object]) -> str:
    """The one line that refuses these flags."""
    with pytest.raises(ConfigError) as raised:
        load(flags, {})
    message = str(raised.value)
    assert "\n" not in message
    return message


class TestProfile:
    @pytest.mark.parametrize(
        ("config", "name", "usual"),
        [
            ({"method": "ngram", "num_speculative_tokens": 4}, "ngram", 1.5),
            ({"method": "eagle3", "num_speculative_tokens": 3}, "eagle3", 2.0),
            ({"method": "deepseek_mtp", "num_speculative_tokens": 1}, "mtp", 1.0),
            ({"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 3}, "eagle3", 2.0),
            ({"model": "some/draft-1B", "num_speculative_tokens": 3}, "unknown", 1.0),
            ({}, "unknown", 1.0),
        ],
    )
    def test_auto_goes_by_the_method(self, config: dict[str, object], name: str, usual: float) -> None:
        """The profile and its thresholds are those of the method that the speculative config names."""
        settings = load({"spec.config": spec(**config)}, {}).settings

        assert settings.profile == BUILTIN[name]
        k = settings.speculation.num_speculative_tokens
        assert settings.thresholds == thresholds_for(BUILTIN[name], k, name)
        assert settings.thresholds.usual_mean_acceptance_length == usual
        assert load({"spec.config": spec(**config), "cost.profile": "auto"}, {}).settings == settings

    def test_without_a_speculative_config(self) -> None:
        """What is not known is judged by the published rubric, at the dearest usual cost."""
        settings = load({}, {}).settings

        assert (settings.profile, settings.thresholds) == (BUILTIN["unknown"], Thresholds())
        assert (settings.size_ratio, settings.memory_ratio, settings.baseline) == (None, None, None)

    @pytest.mark.parametrize("name", BUILTIN)
    def test_by_name(self, name: str) -> None:
        """A profile by name beats the method's."""
        found = load({"cost.profile": name, "spec.config": spec(method="ngram")}, {}).settings

        assert found.profile == BUILTIN[name]

    def test_from_the_environment(self) -> None:
        """Each option has its variable."""
        found = load(
            {},
            {
                "VLLM_SPECDEC_EXPORTER_COST_PROFILE": "eagle",
                "VLLM_SPECDEC_EXPORTER_COST_DRAFT_SIZE_RATIO": "1:4",
            },
        ).settings

        assert (found.profile, found.size_ratio) == (BUILTIN["eagle"], 0.25)

    def test_from_the_configuration_file(self, tmp_path: Path) -> None:
        """Each option has its place in the file."""
        file = tmp_path / "config.yml"
        file.write_text(
            "cost: {profile: draft_model, draft-size-ratio: '1:8', draft-memory: 2GB, gpu-memory: 80GB}\n"
        )
        found = load({}, {}, str(file)).settings

        assert (found.profile, found.size_ratio, found.memory_ratio) == (
            BUILTIN["draft_model"],
            0.125,
            pytest.approx(0.025),
        )

    def test_an_unknown_name(self) -> None:
        """A profile that does not exist is refused with all that do."""
        message = refused({"cost.profile": "egale"})

        assert message.startswith('--cost.profile "egale": no such profile; known: auto, ngram, ')
        assert all(name in message for name in BUILTIN)


class TestFile:
    @staticmethod
    def loaded(tmp_path: Path, text: str, **flags: object) -> Config:
        path = tmp_path / "cost.yml"
        path.write_text(text)
        names = {"profile": "cost.profile", "config": "spec.config"}
        return load({"cost.file": str(path), **{names[key]: value for key, value in flags.items()}}, {})

    def test_a_single_profile_is_meant(self, tmp_path: Path) -> None:
        """One profile in the file needs no name, whatever the method."""
        assert self.loaded(tmp_path, ONE).settings.profile.name == "mine"
        assert self.loaded(tmp_path, ONE, config=spec(method="ngram")).settings.profile.name == "mine"

    @pytest.mark.parametrize(
        ("method", "name"), [("eagle", "first"), ("ngram", "second"), ("medusa", "medusa"), ("", "unknown")]
    )
    def test_several_go_by_the_method(self, tmp_path: Path, method: str, name: str) -> None:
        """Of several profiles the one for the method counts; else the shipped one."""
        assert self.loaded(tmp_path, TWO, config=spec(method=method)).settings.profile.name == name

    def test_by_name(self, tmp_path: Path) -> None:
        """A profile of the file can be named, and so can a shipped one beside it."""
        assert self.loaded(tmp_path, TWO, profile="first").settings.profile.target.fixed == 7.0
        assert self.loaded(tmp_path, TWO, profile="eagle3").settings.profile == BUILTIN["eagle3"]

    def test_a_shipped_name_can_be_taken(self, tmp_path: Path) -> None:
        """The operator's profile beats the shipped one of the same name."""
        text = "profiles: {eagle: {target: {fixed: 7.0}}, other: {target: {fixed: 1.0}}}"

        assert self.loaded(tmp_path, text, profile="eagle").settings.profile.target.fixed == 7.0

    def test_its_thresholds(self, tmp_path: Path) -> None:
        """A cheap profile of the operator's has its own break-even."""
        found = self.loaded(tmp_path, TWO, config=spec(method="ngram", num_speculative_tokens=4)).settings

        assert found.thresholds == thresholds_for(found.profile, 4, "ngram")
        assert found.thresholds != Thresholds()

    def test_its_thresholds_know_the_size_of_the_draft_model(self, tmp_path: Path) -> None:
        """Where drafting costs by size, break-even counts that part too, as the estimate does."""
        text = (
            "profiles: {mine: {cheap: true, size_ratio: 0.1, target: {fixed: 1.0}, "
            "draft: {per_position_of_size: 1.0}}}"
        )
        found = self.loaded(tmp_path, text, config=spec(num_speculative_tokens=3)).settings

        assert fit(found.profile, None).step_cost(3, 1) == pytest.approx(1.3)
        assert found.thresholds.poor_mean_acceptance_length == pytest.approx(1.3)

    def test_an_unknown_name_lists_the_own_ones(self, tmp_path: Path) -> None:
        """What can be named includes the profiles of the file."""
        with pytest.raises(
            ConfigError, match=r'^--cost.profile "x": no such profile; known: auto, .*first, second$'
        ):
            self.loaded(tmp_path, TWO, profile="x")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "a mapping with the one key profiles is expected, from names to profiles"),
            ("profiles:\n", "a mapping with the one key profiles is expected, from names to profiles"),
            ("- x\n", "a mapping with the one key profiles is expected, from names to profiles"),
            ("profiles: {a: {}}", "profile a: target is missing; its key fixed is the time of a step"),
            ("profiles: {a: {target: {fixed: 0}}}", "profile a: target.fixed is 0; allowed: above 0"),
            (
                "profiles: {a: {target: {fixed: slow}}}",
                "profile a: target.fixed is 'slow'; allowed: a number from 0 up",
            ),
            (
                "profiles: {a: {target: {fixed: 1}, drafts: {}}}",
                "profile a: no such key 'drafts'; did you mean draft?",
            ),
        ],
    )
    def test_what_it_cannot_say(self, tmp_path: Path, text: str, message: str) -> None:
        """One line with the option, the file, the profile, the key and what is allowed."""
        with pytest.raises(ConfigError, match=rf'^--cost\.file ".*cost\.yml": {re.escape(message)}$'):
            self.loaded(tmp_path, text)

    @pytest.mark.parametrize("text", ["profiles: {a", "a: b: c\n", "\t- x\n"])
    def test_no_yaml(self, tmp_path: Path, text: str) -> None:
        """A file that is no YAML is refused in one line, under its own option."""
        with pytest.raises(ConfigError, match=r'^--cost\.file ".*cost\.yml": not YAML: [^\n]*$'):
            self.loaded(tmp_path, text)

    @pytest.mark.parametrize(
        "text",
        [
            '"two\\nlines": {target: {fixed: 0}}',
            'a: {target: {fixed: 1}, "two\\nlines": 1}',
            'a: {target: {fixed: "two\\nlines"}}',
        ],
    )
    def test_one_line_whatever_it_holds(self, tmp_path: Path, text: str) -> None:
        """A name, key or value with a line break does not break the message."""
        with pytest.raises(ConfigError, match=r"^[^\n]*$"):
            self.loaded(tmp_path, f"profiles: {{{text}}}")

    def test_not_there(self) -> None:
        """A file that is missing is named with the reason."""
        message = refused({"cost.file": "/no/such/file.yml"})

        assert message == '--cost.file "/no/such/file.yml": cannot be read: No such file or directory'


class TestSizes:
    @pytest.mark.parametrize(
        ("text", "ratio"), [("0.11", 0.11), ("1:9", 1 / 9), ("1", 1.0), ("1:1", 1.0), ("0.5:7", 1 / 14)]
    )
    def test_the_draft_models_size(self, text: str, ratio: float) -> None:
        """A share, or a relation."""
        assert load({"cost.draft-size-ratio": text}, {}).settings.size_ratio == pytest.approx(ratio)

    @pytest.mark.parametrize(
        "text", ["0", "-1", "2", "9:1", "1:0", "x", "", "1:x", "nan", "inf", "1:9:2", "10%"]
    )
    def test_no_size(self, text: str) -> None:
        """Anything else is refused with what is allowed."""
        assert refused({"cost.draft-size-ratio": text}) == (
            f'--cost.draft-size-ratio "{text}": allowed: a number above 0 and at most 1, such as 0.11 or 1:9'
        )

    @pytest.mark.parametrize(
        ("draft", "gpu", "ratio"),
        [
            ("16GB", "160GB", 0.1),
            ("16GiB", "16GiB", 1.0),
            ("1024 MiB", "10GiB", 0.1),
            ("500MB", "0.08TB", 0.00625),
            ("1gb", "80Gb", 0.0125),
        ],
    )
    def test_memory(self, draft: str, gpu: str, ratio: float) -> None:
        """Amounts with their units, decimal or binary."""
        found = load({"cost.draft-memory": draft, "cost.gpu-memory": gpu}, {}).settings

        assert found.memory_ratio == pytest.approx(ratio)

    @pytest.mark.parametrize("option", ["cost.draft-memory", "cost.gpu-memory"])
    @pytest.mark.parametrize("text", ["16", "GB", "0GB", "-1GB", "16 XB", "sixteen GB", "", "1e3GB", "16GBs"])
    def test_no_memory(self, option: str, text: str) -> None:
        """Anything else is refused with what is allowed."""
        assert refused({option: text}) == (
            f'--{option} "{text}": allowed: an amount above 0 with its unit, such as 16GB or 16GiB'
        )

    @pytest.mark.parametrize("option", ["cost.draft-memory", "cost.gpu-memory"])
    def test_one_alone(self, option: str) -> None:
        """The share needs both."""
        assert refused({option: "16GB"}) == "--cost.draft-memory and --cost.gpu-memory go together"

    def test_more_than_there_is(self) -> None:
        """A draft model does not exceed the GPUs that hold it; both options and values are named."""
        message = refused({"cost.draft-memory": "200GB", "cost.gpu-memory": "160GB"})

        assert message == "--cost.draft-memory: 2e+11 bytes are more than the 1.6e+11 of --cost.gpu-memory"


class TestBaseline:
    GOOD = baseline(bucket(1.0, 0.1), bucket(3.0, 0.2))

    def test_a_file(self, tmp_path: Path) -> None:
        """The file's baseline is what the pipeline compares with."""
        path = tmp_path / "baseline.json"
        path.write_bytes(encode(self.GOOD))

        assert load({"baseline.file": str(path)}, {}).settings.baseline == self.GOOD

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"", "not JSON: Expecting value: line 1 column 1 (char 0)"),
            (b"{}", "its format is null, and this exporter reads vllm-specdec-baseline/1: record it anew"),
            (
                b'{"format": "vllm-specdec-baseline/9"}',
                (
                    'its format is "vllm-specdec-baseline/9", and this exporter reads '
                    "vllm-specdec-baseline/1: record it anew"
                ),
            ),
            (encode(baseline()), "no load bucket holds a time per output token: nothing was recorded"),
        ],
    )
    def test_what_it_cannot_say(self, tmp_path: Path, body: bytes, message: str) -> None:
        """One line with the option, the file and what is wrong."""
        path = tmp_path / "baseline.json"
        path.write_bytes(body)

        assert refused({"baseline.file": str(path)}) == f'--baseline.file "{path}": {message}'

    def test_not_there(self) -> None:
        """A file that is missing is named with the reason."""
        message = refused({"baseline.file": "/no/such/file"})

        assert message == '--baseline.file "/no/such/file": cannot be read: No such file or directory'


class TestThresholds:
    def test_the_operators_value_beats_the_methods(self) -> None:
        """What --threshold says counts, beside defaults that fit the method."""
        settings = load(
            {
                "spec.config": spec(method="eagle", num_speculative_tokens=5),
                "threshold": ["poor_acceptance_ratio=0.05", "advice_minimum_drafts=50"],
            },
            {},
        ).settings
        default = thresholds_for(BUILTIN["eagle"], 5, "eagle")

        assert settings.thresholds == default.with_values(
            {"poor_acceptance_ratio": 0.05, "advice_minimum_drafts": 50}
        )

    def test_a_value_that_contradicts_the_methods_defaults(self) -> None:
        """A value that fits the rubric need not fit a cheap drafter: the line names both numbers."""
        message = refused(
            {
                "spec.config": spec(method="ngram", num_speculative_tokens=4),
                "threshold": ["poor_acceptance_ratio=0.35"],
            }
        )
        healthy = thresholds_for(BUILTIN["ngram"], 4).healthy_acceptance_ratio

        assert message == (
            "--threshold: threshold poor_acceptance_ratio (0.35) exceeds "
            f"healthy_acceptance_ratio ({healthy:g}); "
            "what is not set comes from the break-even of ngram at K=4, one request"
        )
