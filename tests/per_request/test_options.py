"""Settings of single requests: empty ones, such as would have no effect, and those that follow others."""

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from per_request.exact import request
from support.builders import refusal
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.per_request.observation import Source
from vllm_specdec_exporter.per_request.openai_api import RequestFields
from vllm_specdec_exporter.serve import configuration as config
from vllm_specdec_exporter.serve.configuration import ServeConfig
from vllm_specdec_exporter.serve.request_intake import RequestIntake

VARIABLE = "VLLM_SPECDEC_EXPORTER_REQUESTS_TYPE_HEADER"
CHATS = "/v1/chat/completions"


def load(
    flags: dict[str, Any] | None = None, environment: dict[str, str] | None = None, file: str = ""
) -> ServeConfig:
    return config.load(flags or {}, environment or {}, file)


def written(path: Path, document: object) -> str:
    file = path / "config.yml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


def test_no_type_header(tmp_path: Path) -> None:
    """An empty one, unlike other empty settings, says that clients name no types: the route is the type.

    A flag beats the environment, which beats the file. Rules go on, also where they look into that header.
    """

    def kind(found: ServeConfig) -> str:
        return found.requests.classification.type_of(CHATS, {"x-request-type": "ada"}, RequestFields())

    named = {"requests.type-header": "X-Request-Type"}
    assert kind(load()) == "ada"
    for text in ("", " "):
        assert kind(load({"requests.type-header": text})) == "chat"
    assert kind(load({}, {VARIABLE: ""})) == "chat"
    assert kind(load(named, {VARIABLE: ""})) == "ada"
    for value in ("", None):
        file = written(tmp_path, {"requests": {"type_header": value, "window": None}})
        assert kind(load({}, {}, file)) == "chat"
        assert kind(load({}, {VARIABLE: "X-Request-Type"}, file)) == "ada"
        assert load({}, {"VLLM_SPECDEC_EXPORTER_REQUESTS_WINDOW": ""}, file).requests.window_seconds == 1800
    found = load({"requests.type-header": "", "requests.type": ["mine=header.x-request-type:a*"]})
    assert (kind(found), found.shown["requests.type_header"]) == ("mine", "")


class TestWithoutEffect:
    def test_of_a_tap_that_is_not_there(self, tmp_path: Path) -> None:
        """Wherever it is said: somebody takes the tap for switched on, and is told what is missing."""
        values = {"upstream": "http://127.0.0.1:8001", "drain-timeout": "10s"}
        for name, value in {**values, "cert-file": __file__, "key-file": __file__}.items():
            told = f"--tap.{name} needs --tap.listen-address, such as :9852: without it there is no tap"
            file = written(tmp_path, {"tap": {name.replace("-", "_"): value}})
            assert refusal(ConfigError, load, {f"tap.{name}": value}) == told
            assert refusal(ConfigError, load, {}, {}, file) == told

    def test_what_says_the_default(self) -> None:
        """It changes nothing, with a tap or without."""
        assert load({"tap.drain-timeout": "25s"}).tap is None

    def test_a_header_for_no_tenant(self) -> None:
        """All tenants would be one."""
        told = "--requests.tenant-header needs --requests.tenant: the tenants with their own label value"
        assert refusal(ConfigError, load, {"requests.tenant-header": "X-Team"}) == told
        assert load({"requests.tenant-header": "X-Team", "requests.tenant": ["a"]}).requests is not None


class TestLimits:
    def test_the_log_tells_once_of_each_kind_of_name(self, caplog: pytest.LogCaptureFixture) -> None:
        """However many requests come with names for which there is no room, also after a reload."""
        found = RequestIntake(load({"push.bearer-token-file": __file__}), lambda: 0.0)
        with caplog.at_level(logging.WARNING):
            for number in range(50):
                found.observe(Source.PUSH, request(82, request_type=f"t{number}"))
            found.use(load({"push.bearer-token-file": __file__}))
            for number in range(50):
                found.observe(Source.PUSH, request(82, request_type=f"t{number}", model_name=f"m{number}"))
        lines = [(line.message, vars(line)["fields"]) for line in caplog.records]

        assert lines == [
            ("label limit reached", {"label": "type"}),
            ("label limit reached", {"label": "model"}),
        ]


class TestZones:
    NGRAM = '{"method": "ngram", "num_speculative_tokens": 4}'

    def limit(self, *thresholds: tuple[str, float], **flags: str) -> float:
        """The limit of P10 in force, which is the one that is published."""
        texts = {"threshold": [f"{name}={value}" for name, value in thresholds], **flags}
        return load(texts).settings.thresholds.poor_request_acceptance_ratio

    def test_it_follows_the_zone_of_losing(self) -> None:
        """The published limit; that of the zone that the operator sets; its own where it is set too."""
        below = ("disable_acceptance_ratio", 0.3)

        assert self.limit() == 0.5
        assert self.limit(below) == 0.3
        assert self.limit(("break_even_acceptance_ratio", 0.8)) == 0.5
        for own in (("poor_request_acceptance_ratio", 0.2), ("poor_request_acceptance_ratio", 0.5)):
            assert self.limit(below, own) == self.limit(own, below) == own[1]

    def test_of_a_cheap_drafter(self) -> None:
        """There it comes from the break-even point, as the zone does, and follows that of the operator."""
        cheap = load({"spec.config": self.NGRAM}).settings.thresholds

        assert cheap.poor_request_acceptance_ratio == cheap.disable_acceptance_ratio < 0.3
        spec = {"spec.config": self.NGRAM}
        assert self.limit(("disable_acceptance_ratio", 0.01), **spec) == 0.01
