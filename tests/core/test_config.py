from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from vllm_specdec_exporter.config import Config, UpstreamConfig, load
from vllm_specdec_exporter.listen_address import format_address, parse_listen_address
from vllm_specdec_exporter.option_table import OPTIONS
from vllm_specdec_exporter.options import ConfigError, unknown_variables
from vllm_specdec_exporter.pipeline import Settings, Speculation
from vllm_specdec_exporter.target import Target
from vllm_specdec_exporter.thresholds import Thresholds
from vllm_specdec_exporter.values import parse_speculation
from vllm_specdec_exporter.window import Window

if TYPE_CHECKING:
    from pathlib import Path


def variables(**values: str) -> dict[str, str]:
    return {f"VLLM_SPECDEC_EXPORTER_{name}": value for name, value in values.items()}


def from_flags(**values: Any) -> Config:
    """Flags by their names with `_` for `.`, such as ``poll_interval``."""
    names = {option.name.replace(".", "_").replace("-", "_"): option.name for option in OPTIONS}
    return load({names[name]: value for name, value in values.items()}, {})


class TestDefaults:
    def test_nothing_said(self) -> None:
        """Without any setting the exporter watches a vLLM on this machine."""
        config = load({}, {})

        assert (
            UpstreamConfig(targets=(Target("http://127.0.0.1:8000/metrics"),), timeout=4.0) == config.upstream
        )
        assert Settings() == config.settings
        assert (
            config.poll_interval,
            config.listen,
            config.process_metrics,
            config.log_format,
            config.log_level,
            config.log_interval,
        ) == (5.0, ("", 9850), True, "logfmt", "info", 60.0)

    def test_the_contract(self) -> None:
        """Windows of 30 seconds and 5 minutes, the longest judged, half a poll interval of slack."""
        settings = load({}, {}).settings

        assert ((Window(30), Window(300)), Window(300), 2.5, Thresholds(), Speculation()) == (
            settings.windows,
            settings.judged,
            settings.slack,
            settings.thresholds,
            settings.speculation,
        )

    def test_all_is_shown(self) -> None:
        """Every setting has what may be shown of it, by the file's key."""
        assert [option.key for option in OPTIONS] == list(load({}, {}).shown)


class TestPlaces:
    def test_flag_environment_and_file(self, tmp_path: Path) -> None:
        """Each setting comes from the place that counts most for it."""
        file = tmp_path / "config.yml"
        file.write_text(
            "poll: {interval: 7s, timeout: 1s}\n"
            "log: {level: debug, format: json}\n"
            "vllm:\n"
            "  url:\n"
            "    - http://a:8000\n"
            "    - unix:/b.sock\n"
            "  header: {X-Team: core}\n"
        )
        config = load({"poll.interval": "2s"}, variables(POLL_INTERVAL="3s", LOG_LEVEL="warning"), str(file))

        assert (
            config.poll_interval,
            config.upstream.timeout,
            config.log_level,
            config.log_format,
        ) == (2.0, 1.0, "warning", "json")
        assert tuple(t.name for t in config.upstream.targets) == ("http://a:8000", "unix:/b.sock")
        assert config.upstream.headers == (("X-Team", "core"),)

    def test_several_values_in_the_environment(self) -> None:
        """Servers and windows are separated by commas."""
        config = load({}, variables(VLLM_URL="http://a, http://b:1", WINDOW="1m,10s"))

        assert [target.name for target in config.upstream.targets] == ["http://a", "http://b:1"]
        assert (Window(10), Window(60)) == config.settings.windows

    def test_the_speculative_config_in_yaml(self, tmp_path: Path) -> None:
        """The JSON may be written as YAML in the file."""
        file = tmp_path / "config.yml"
        file.write_text("spec:\n  config:\n    method: ngram\n    num_speculative_tokens: 4\n")

        assert (
            Speculation(True, "ngram", "", 4, '{"method": "ngram", "num_speculative_tokens": 4}')
            == load({}, {}, str(file)).settings.speculation
        )

    @pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "poll:\n", "{}\n"])
    def test_an_empty_file(self, text: str, tmp_path: Path) -> None:
        """A file may say nothing."""
        file = tmp_path / "config.yml"
        file.write_text(text)

        assert load({}, {}) == load({}, {}, str(file))

    def test_kubernetes_service_links(self) -> None:
        """Variables of a Service of the same name are neither settings nor mistakes."""
        environment = variables(PORT="tcp://10.0.0.1:9850", SERVICE_HOST="10.0.0.1", SERVICE_PORT="9850")

        assert load({}, {}) == load({}, environment)
        assert unknown_variables(OPTIONS, environment) == []


class TestBadFile:
    def test_it_is_not_there(self, tmp_path: Path) -> None:
        """A file that is missing is named with the reason."""
        with pytest.raises(
            ConfigError, match=r'^--config.file ".*none.yml": cannot be read: No such file or directory$'
        ):
            load({}, {}, str(tmp_path / "none.yml"))

    @pytest.mark.parametrize(
        "text",
        [
            b"poll: {interval",
            b"a: b: c\n",
            b"\t- x\n",
            b"\x00",
            b"\xff\xfe\xfa",
            b"!!python/object:os.x {}\n",
        ],
    )
    def test_it_is_not_yaml(self, text: bytes, tmp_path: Path) -> None:
        """A file that is no YAML is refused in one line."""
        file = tmp_path / "config.yml"
        file.write_bytes(text)

        with pytest.raises(ConfigError, match=r'^--config.file "[^\n]*config.yml": not YAML: [^\n]+$'):
            load({}, {}, str(file))

    def test_it_holds_an_impossible_date(self, tmp_path: Path) -> None:
        """A value that YAML takes for a date, and that is none, is refused in one line too."""
        file = tmp_path / "config.yml"
        file.write_text("poll: {interval: 2024-13-45}\n")

        with pytest.raises(ConfigError, match=r"^[^\n]*config.yml[^\n]*$"):
            load({}, {}, str(file))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("poll: {intervall: 5s}\n", "poll.intervall in {}: no such setting; did you mean poll.interval?"),
            ("windows: 5s\n", "windows in {}: no such setting; did you mean window?"),
            ("vllm: {urls: x}\n", "vllm.urls in {}: no such setting; did you mean vllm.url?"),
            ("poll: 5s\n", "poll in {}: a mapping of settings is expected"),
            ("- poll\n", "{}: a mapping of settings is expected"),
            ("poll: {interval: [1s]}\n", "poll.interval in {}: takes one value, not a list"),
            (
                "poll: {interval: 5}\n",
                'poll.interval in {} "5": a duration needs a unit: such as 500ms, 5s, 5m or 1h30m',
            ),
        ],
    )
    def test_what_it_says(self, text: str, message: str, tmp_path: Path) -> None:
        """Keys and values in the file are named with the file."""
        file = tmp_path / "config.yml"
        file.write_text(text)

        with pytest.raises(ConfigError, match=f"^{re.escape(message.format(file))}$"):
            load({}, {}, str(file))


class TestValues:
    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (
                {"poll_interval": "5"},
                '--poll.interval "5": a duration needs a unit: such as 500ms, 5s, 5m or 1h30m',
            ),
            ({"poll_interval": "50ms"}, '--poll.interval "50ms": at least 100ms is needed'),
            ({"poll_interval": "0s"}, '--poll.interval "0s": at least 100ms is needed'),
            ({"poll_timeout": "10ms"}, '--poll.timeout "10ms": at least 50ms is needed'),
            ({"window": ["30s", "900ms"]}, '--window "900ms": at least 1s is needed'),
            ({"log_format": "xml"}, '--log.format "xml": allowed: logfmt, json'),
            ({"log_level": "INFO"}, '--log.level "INFO": allowed: debug, info, warning, error'),
            ({"vllm_insecure_skip_verify": "yes"}, '--vllm.insecure-skip-verify "yes": allowed: true, false'),
            (
                {"vllm_ca_file": "/no/such/file"},
                '--vllm.ca-file "/no/such/file": cannot be read: No such file or directory',
            ),
            ({"vllm_ca_file": "/"}, '--vllm.ca-file "/": cannot be read: Is a directory'),
            (
                {"vllm_url": ["http://a", "b:8000"]},
                (
                    '--vllm.url "b:8000": not an address; allowed: http://host:port, https://host:port or '
                    "unix:/path/to.sock"
                ),
            ),
            (
                {"threshold": ["poor_acceptance_ratio"]},
                '--threshold "poor_acceptance_ratio": allowed: name=number',
            ),
            (
                {"threshold": ["poor_acceptance_ratio=low"]},
                '--threshold "poor_acceptance_ratio=low": allowed: name=number',
            ),
            (
                {"threshold": ["poor_acceptance_ratio=40"]},
                (
                    '--threshold "poor_acceptance_ratio=40": threshold poor_acceptance_ratio is 40; '
                    "allowed: between 0 and 1"
                ),
            ),
            (
                {"spec_config": "ngram"},
                (
                    '--spec.config "ngram": not JSON (Expecting value: line 1 column 1 (char 0)); allowed: '
                    "the very JSON given to vLLM's --speculative-config"
                ),
            ),
            (
                {"web_listen_address": "9850"},
                (
                    '--web.listen-address "9850": allowed: host:port with a port from 0 to 65535, '
                    "such as :9850, 127.0.0.1:9850 or [::1]:9850"
                ),
            ),
        ],
    )
    def test_a_bad_value(self, flags: dict[str, Any], message: str) -> None:
        """One line: where the value came from, the value, and what is allowed."""
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
            from_flags(**flags)

    def test_an_unknown_threshold(self) -> None:
        """A threshold that does not exist is refused with those that do."""
        with pytest.raises(
            ConfigError, match=r'^--threshold "ratio=1": unknown threshold \'ratio\'; most like it: '
        ):
            from_flags(threshold=["ratio=1"])

    def test_every_default_is_a_value(self) -> None:
        """What the help shows as the default can be given."""
        given = {
            option.name: list(option.default) if option.repeatable else option.default
            for option in OPTIONS
            if option.default
        }

        assert load({}, {}) == load(given, {})


class TestTogether:
    """What must hold between settings."""

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (
                {"poll_interval": "2s", "poll_timeout": "2s"},
                "--poll.timeout 2s: must be less than --poll.interval 2s",
            ),
            (
                {"window": ["4s", "1m"]},
                "--window 4s: shorter than --poll.interval 5s, so it would never hold two samples",
            ),
            (
                {"window": ["30s", "2d"]},
                (
                    "--window 2d: at --poll.interval 5s it would take more than 20000 samples; choose "
                    "a shorter window or a longer interval"
                ),
            ),
            (
                {"judgement_window": "1m"},
                "--judgement.window 1m: not one of the windows (30s, 5m)",
            ),
            (
                {"vllm_url": ["http://a", "http://a/metrics"]},
                '--vllm.url "http://a": given twice',
            ),
            ({"vllm_cert_file": "/dev/null"}, "--vllm.cert-file and --vllm.key-file go together"),
            ({"vllm_key_file": "/dev/null"}, "--vllm.cert-file and --vllm.key-file go together"),
            (
                {"threshold": ["poor_acceptance_ratio=0.65"]},
                "--threshold: threshold poor_acceptance_ratio (0.65) exceeds healthy_acceptance_ratio (0.6)",
            ),
        ],
    )
    def test_values_that_contradict_each_other(self, flags: dict[str, Any], message: str) -> None:
        """Values that are fine alone but not together are refused in one line."""
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
            from_flags(**flags)

    @pytest.mark.parametrize(
        ("environment", "message"),
        [
            (variables(VLLM_URL=","), "--vllm.url: at least one server is needed"),
            (variables(WINDOW=","), "--window: at least one is needed"),
        ],
    )
    def test_none_at_all(self, environment: dict[str, str], message: str) -> None:
        """A list that is made empty is refused where one value is needed."""
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
            load({}, environment)

    def test_an_empty_variable(self) -> None:
        """A variable without a value is none: deployments leave settings out that way."""
        empty = {option.variable: "" for option in OPTIONS if not option.may_be_empty}

        assert load({}, {}) == load({}, empty)

    def test_an_empty_variable_that_says_none(self) -> None:
        """Where there is a default, and no other word for nothing; the help says so."""
        say_none = [option for option in OPTIONS if option.may_be_empty]

        assert [option.name for option in say_none] == ["requests.type-header"]
        assert all(option.help.endswith(" Empty for none.") for option in say_none)
        assert load({}, {}).requests.classification.type_header == "x-request-type"
        assert load({}, {say_none[0].variable: ""}).requests.classification.type_header == ""

    @pytest.mark.parametrize(
        ("interval", "timeout"), [("5s", 4.0), ("30s", 4.0), ("2s", 1.6), ("500ms", 0.4), ("4900ms", 3.92)]
    )
    def test_the_default_timeout(self, interval: str, timeout: float) -> None:
        """A poll may take 4 seconds, or 80 % of a shorter interval."""
        assert pytest.approx(timeout) == from_flags(poll_interval=interval).upstream.timeout

    def test_windows_are_sorted_and_distinct(self) -> None:
        """Windows are published from the shortest to the longest, each once."""
        settings = from_flags(window=["5m", "30s", "300s"]).settings

        assert ((Window(30), Window(300)), Window(300)) == (settings.windows, settings.judged)

    def test_another_window_is_judged(self) -> None:
        """The judged window may be written in any way."""
        assert Window(300) == from_flags(window=["5m", "1h"], judgement_window="300s").settings.judged

    def test_slack_follows_the_interval(self) -> None:
        """Half a poll interval."""
        assert from_flags(poll_interval="2s").settings.slack == 1.0

    def test_thresholds(self) -> None:
        """Thresholds given together may move past each other's defaults."""
        names = ["poor_acceptance_ratio=0.65", "healthy_acceptance_ratio=0.68", "minimum_drafts=7"]

        assert (
            Thresholds().with_values(
                {"poor_acceptance_ratio": 0.65, "healthy_acceptance_ratio": 0.68, "minimum_drafts": 7}
            )
            == from_flags(threshold=names).settings.thresholds
        )

    def test_log_lines_can_be_switched_off(self) -> None:
        """An interval of 0 is no lines."""
        assert from_flags(log_interval="0s").log_interval == 0.0


class TestSecrets:
    """No error shows a secret."""

    @pytest.mark.parametrize(
        "url",
        [
            "http://me:hunter2@host:99999",
            "http://me:hunter2@host:port",
            "ftp://me:hunter2@host",
            "http://me:hunter2@host/#fragment",
            "http://me:hunter2/x@host:8000",
            "http://me:hunter2?x@host:8000",
            "http://me:hunter2#x@host:8000",
            "http://me:hunter2@[::1",
            "me:hunter2@host:8000",
            "http:/me:hunter2@host:8000",
        ],
    )
    def test_a_password_in_a_bad_address(self, url: str) -> None:
        """The password of an address that cannot be used is not shown."""
        with pytest.raises(ConfigError) as raised:
            from_flags(vllm_url=[url])

        assert "hunter2" not in str(raised.value)
        assert "allowed: http://host:port" in str(raised.value)

    def test_a_password_in_an_address_given_twice(self) -> None:
        """Nor that of one that can."""
        with pytest.raises(ConfigError, match=r'^--vllm.url "http://host": given twice$'):
            from_flags(vllm_url=["http://me:hunter2@host", "http://you:hunter2@host"])

    @pytest.mark.parametrize(
        ("header", "shown"),
        [
            ("Authorization hunter2", "<secret>"),
            ("Bad Name: hunter2", "Bad Name: <secret>"),
            ("X: hunter2\x00", "X: <secret>"),
            (": hunter2", ": <secret>"),
        ],
    )
    def test_a_bad_header(self, header: str, shown: str) -> None:
        """Headers carry tokens, so no value is shown."""
        with pytest.raises(ConfigError, match=f'^--vllm.header "{shown}": allowed: Name: value$'):
            from_flags(vllm_header=[header])

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("http://me:hunter2@host:8000", "http://<secret>@host:8000"),
            ("http://me:hun@ter2@host", "http://<secret>@host"),
            ("unix:/vllm.sock", "unix:/vllm.sock"),
        ],
    )
    def test_what_is_shown_of_an_address(self, url: str, shown: str) -> None:
        """`/config` shows the address as written, without its credentials."""
        assert [shown] == from_flags(vllm_url=[url]).shown["vllm.url"]

    def test_what_is_shown_of_a_header(self) -> None:
        """`/config` shows a header's name."""
        assert from_flags(vllm_header=["X-Token: hunter2"]).shown["vllm.header"] == ["X-Token: <secret>"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":9850", ("", 9850)),
        (":0", ("", 0)),
        ("127.0.0.1:9850", ("127.0.0.1", 9850)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:9850", ("::1", 9850)),
        ("[::]:9850", ("::", 9850)),
    ],
)
def test_listen_address(text: str, expected: tuple[str, int]) -> None:
    """Host and port as Prometheus exporters write them, and back; no host is every address."""
    assert expected == parse_listen_address(text)
    assert format_address(*expected) == text


@pytest.mark.parametrize("text", ["", "9850", "host", "host:", ":65536", ":-1", ":x", "::1:9850", "[::1]"])
def test_no_listen_address(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match=r"^allowed: host:port with a port from 0 to 65535, "):
        parse_listen_address(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", Speculation(True)),
        ('{"method": "ngram", "num_speculative_tokens": 4}', Speculation(True, "ngram", "", 4)),
        (
            '{"method": "eagle3", "model": "some/draft", "num_speculative_tokens": 3, "quantization": 5}',
            Speculation(True, "eagle3", "some/draft", 3),
        ),
        ('{"model": "some/draft"}', Speculation(True, "", "some/draft", None)),
        ('{"model": null, "method": null, "num_speculative_tokens": null}', Speculation(True)),
    ],
)
def test_speculative_config(text: str, expected: Speculation) -> None:
    """Method, draft model and K are read; vLLM's other keys are left alone, and the JSON is kept."""
    assert replace(expected, document=text) == parse_speculation(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON (Expecting value: line 1 column 1 (char 0)); allowed: the very JSON given to vLLM's "),
        ("{'method': 'ngram'}", "not JSON ("),
        ("[]", "a JSON object is expected, such as "),
        ('"ngram"', "a JSON object is expected, such as "),
        ('{"num_speculative_tokens": 0}', "num_speculative_tokens is a whole number from 1 up"),
        ('{"num_speculative_tokens": -1}', "num_speculative_tokens is a whole number from 1 up"),
        ('{"num_speculative_tokens": 2.5}', "num_speculative_tokens is a whole number from 1 up"),
        ('{"num_speculative_tokens": "4"}', "num_speculative_tokens is a whole number from 1 up"),
        ('{"num_speculative_tokens": true}', "num_speculative_tokens is a whole number from 1 up"),
        ('{"method": 5}', "method is a string"),
        ('{"model": ["x"]}', "model is a string"),
    ],
)
def test_no_speculative_config(text: str, message: str) -> None:
    """What vLLM could not take either is refused."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        parse_speculation(text)
