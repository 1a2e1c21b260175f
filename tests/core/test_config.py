"""Settings: where they come from, what they become, and one line for each that cannot
be used.
"""

import hmac
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from msgspec.structs import replace

from support.builders import refusal
from vllm_specdec_exporter.config import files
from vllm_specdec_exporter.config.listen_address import (
    format_address,
    parse_listen_address,
)
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.config.values import Target
from vllm_specdec_exporter.economics.speculative_config import (
    Speculation,
    parse_speculation,
)
from vllm_specdec_exporter.measures.history import Window
from vllm_specdec_exporter.observe.settings import Settings
from vllm_specdec_exporter.settings.configuration import ServeConfig, load
from vllm_specdec_exporter.settings.option_table import OPTIONS
from vllm_specdec_exporter.upstream.connection import UpstreamConfig

_FLAGS = {
    option.name.replace(".", "_").replace("-", "_"): option.name for option in OPTIONS
}


def from_flags(**values: Any) -> ServeConfig:
    """Flags by their names with `_` for `.`, such as ``poll_interval``."""
    return load({_FLAGS[name]: value for name, value in values.items()}, {})


def refused(**values: Any) -> str:
    """The line that refuses these flags."""
    return refusal(ConfigError, lambda: from_flags(**values))


def test_without_any_setting_the_exporter_watches_a_vllm_on_this_machine() -> None:
    """Windows of 30 seconds and 5 minutes, the longest judged, half a poll interval of
    slack; no tap, no pushes, and no web configuration.
    """
    config = load({}, {})

    assert config.upstream == UpstreamConfig(
        targets=(Target("http://127.0.0.1:8000/metrics"),), timeout=4.0
    )
    assert config.settings == Settings()
    assert config.poll_interval == 5.0
    assert config.listen == ("", 9850)
    assert config.process_metrics is True
    assert config.log_format == "logfmt"
    assert config.log_level == "info"
    assert config.log_interval == 60.0
    settings = config.settings
    assert settings.windows == (Window(30), Window(300))
    assert settings.judged == Window(300)
    assert settings.slack == 2.5
    assert settings.thresholds == Thresholds()
    assert settings.speculation == Speculation()
    assert config.tap is None
    assert config.push_token_file == config.web_config_file == ""
    # of every setting, what may be shown
    assert list(config.shown) == [option.key for option in OPTIONS]


def test_an_empty_variable_is_none() -> None:
    """Deployments leave settings out that way."""
    empty = {option.variable: "" for option in OPTIONS if not option.may_be_empty}

    assert load({}, empty) == load({}, {})


def refused_file(path: Path | str) -> str:
    """The line that refuses a file of settings."""
    return refusal(ConfigError, lambda: load({}, {}, str(path)))


class TestBadFile:
    def test_one_that_is_not_yaml_or_not_there(self, tmp_path: Path) -> None:
        """It is refused in one line with its name."""
        file = tmp_path / "config.yml"
        start = f'--config.file "{file}": '
        missing = "cannot be read: No such file or directory"
        assert refused_file(file) == f"{start}{missing}"
        for text in (
            b"poll: {interval",
            b"\t- x\n",
            b"\x00",
            b"\xff\xfe\xfa",
            b"!!python/object:os.x {}\n",
        ):
            file.write_bytes(text)
            message = refused_file(file)
            assert message.startswith(f"{start}not YAML: "), text
            assert "\n" not in message, text

    def test_one_that_never_ends(self, tmp_path: Path) -> None:
        """A pipe, a device and a file of gigabytes are refused, and not waited for."""
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "large").touch()
        os.truncate(tmp_path / "large", 2**33)
        for path in (tmp_path / "pipe", "/dev/zero"):
            assert refused_file(path).endswith(": not a regular file"), path
        assert refused_file(tmp_path / "large").endswith(": larger than 4 MiB")


#: Flags with a value, and the message that refuses it.
REFUSED: list[tuple[dict[str, Any], str]] = yaml.safe_load(
    Path(__file__).with_name("refused.yml").read_text("utf-8")
)["settings"]


def test_a_bad_value_is_one_line_with_its_place_the_value_and_what_is_allowed() -> None:
    assert [(flags, refused(**flags)) for flags, _ in REFUSED] == [
        (flags, f"--{_FLAGS[next(iter(flags))]} {message}")
        for flags, message in REFUSED
    ]
    assert (
        refused(vllm_key_file="/dev/null")
        == "--vllm.cert-file and --vllm.key-file go together"
    )
    assert refused(threshold=["ratio=1"]).startswith(
        "--threshold \"ratio=1\": unknown threshold 'ratio'; most like it: "
    )


@pytest.mark.parametrize("method", ["eagle3", "mtp", "draft_model"])
def test_one_setting_restores_the_published_thresholds_for_any_method(
    method: str,
) -> None:
    """The preset `published`; a threshold that is named as well still counts."""
    spec = f'{{"method": "{method}", "num_speculative_tokens": 3, "model": "draft"}}'
    thresholds = from_flags(
        spec_config=spec, threshold=["published", "minimum_drafts=50"]
    ).settings.thresholds
    assert thresholds == Thresholds(minimum_drafts=50)


def test_a_list_that_is_made_empty_is_refused_where_one_value_is_needed() -> None:
    names = ("VLLM_SPECDEC_EXPORTER_VLLM_URL", "VLLM_SPECDEC_EXPORTER_WINDOW")
    assert [refusal(ConfigError, load, {}, {name: ","}) for name in names] == [
        "--vllm.url: at least one server is needed",
        "--window: at least one is needed",
    ]


class TestMeaning:
    def test_a_poll_may_take_4_seconds_or_80_percent_of_a_shorter_interval(
        self,
    ) -> None:
        expected = {"5s": 4.0, "30s": 4.0, "2s": 1.6, "500ms": 0.4, "4900ms": 3.92}
        timeouts = {
            interval: from_flags(poll_interval=interval).upstream.timeout
            for interval in expected
        }

        assert timeouts == pytest.approx(expected)
        assert from_flags(poll_interval="2s").settings.slack == 1.0  # half an interval

    def test_windows_are_sorted_and_distinct_and_any_of_them_is_judged(self) -> None:
        """However it is written; the longest, unless said otherwise."""
        settings = from_flags(window=["5m", "30s", "300s"]).settings

        assert settings.windows == (Window(30), Window(300))
        assert settings.judged == Window(300)
        assert from_flags(
            window=["5m", "1h"], judgement_window="300s"
        ).settings.judged == Window(300)


def test_headers_carry_tokens_so_no_value_is_shown() -> None:
    headers = [
        "Authorization hunter2",
        "Bad Name: hunter2",
        "X: hunter2\x00",
        ": hunter2",
    ]
    shown = ["<secret>", "Bad Name: <secret>", "X: <secret>", ": <secret>"]
    assert [refused(vllm_header=[header]) for header in headers] == [
        f'--vllm.header "{text}": allowed: Name: value' for text in shown
    ]


def test_an_address_is_shown_as_written_without_its_credentials() -> None:
    urls = ["http://me:hunter2@host:8000", "http://me:hun@ter2@host", "unix:/vllm.sock"]
    shown = ["http://<secret>@host:8000", "http://<secret>@host", "unix:/vllm.sock"]
    assert from_flags(vllm_url=urls).shown["vllm.url"] == shown


def test_listen_address() -> None:
    """Host and port as Prometheus exporters write them, and back; no host is every
    address.
    """
    addresses = {
        ":9850": ("", 9850),
        ":0": ("", 0),
        "127.0.0.1:9850": ("127.0.0.1", 9850),
        "localhost:65535": ("localhost", 65535),
        "[::1]:9850": ("::1", 9850),
    }
    assert {text: parse_listen_address(text) for text in addresses} == addresses
    assert [format_address(*address) for address in addresses.values()] == list(
        addresses
    )

    others = ("", "9850", "host", "host:", ":65536", ":-1", ":x", "::1:9850", "[::1]")
    said = {text: refusal(ValueError, parse_listen_address, text) for text in others}
    allowed = "allowed: host:port with a port from 0 to 65535, "
    assert [text for text in others if not said[text].startswith(allowed)] == []


def test_speculative_config() -> None:
    """Method, draft model and K are read; vLLM's other keys are left alone, and the
    JSON is kept.
    """
    for text, expected in (
        ("{}", Speculation(True)),
        (
            '{"method": "ngram", "num_speculative_tokens": 4}',
            Speculation(True, "ngram", "", 4),
        ),
        (
            (
                '{"method": "eagle3", "model": "some/draft", "num_speculative_tokens": '
                '3, "quantization": 5}'
            ),
            Speculation(True, "eagle3", "some/draft", 3),
        ),
        ('{"model": "some/draft"}', Speculation(True, "", "some/draft", None)),
        # Not a misspelling of synthetic_acceptance_rate.
        ('{"synthetic_acceptance_length": 2.5}', Speculation(True)),
        (
            '{"model": null, "method": null, "num_speculative_tokens": null}',
            Speculation(True),
        ),
    ):
        assert parse_speculation(text) == replace(expected, document=text), text


def test_what_vllm_could_not_take_as_speculative_config_either_is_refused() -> None:
    whole_number = "num_speculative_tokens is a whole number from 1 up"
    starts = {
        "": (
            "not JSON (Expecting value: line 1 column 1 (char 0)); allowed: the very "
            "JSON given to vLLM's "
        ),
        "{'method': 'ngram'}": "not JSON (",
        "[]": "a JSON object is expected, such as ",
        '"ngram"': "a JSON object is expected, such as ",
        **{
            f'{{"num_speculative_tokens": {k}}}': whole_number
            for k in ("0", "-1", "2.5", '"4"', "true")
        },
        '{"method": 5}': "method is a string",
        '{"method": "eagel3"}': '"eagel3" is not known to vLLM; did you mean eagle3?',
        '{"num_speculative_token": 3}': (
            '"num_speculative_token" is not known to vLLM; did you mean num_spec'
        ),
        '{"model": ["x"]}': "model is a string",
    }
    said = {text: refusal(ValueError, parse_speculation, text) for text in starts}
    assert [
        text for text, start in starts.items() if not said[text].startswith(start)
    ] == []


def test_a_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the function that Python has for it, whatever is wrong with the header."""
    compared = Mock(side_effect=hmac.compare_digest)
    monkeypatch.setattr(files.hmac, "compare_digest", compared)
    headers = ("Bearer secret", "bearer  secret ", "Bearer s", "Basic secret", "", "é")
    allowed = [files.is_authorized(header, "secret") for header in headers]
    assert allowed == [True, True, False, False, False, False]
    assert compared.call_count == len(headers)
