"""Settings of single requests: empty ones, such as would have no effect, and those that follow others."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from per_request.exact import request
from per_request.traffic import CODE, pairs
from support.commands import run
from vllm_specdec_exporter import config
from vllm_specdec_exporter.options import ConfigError
from vllm_specdec_exporter.per_request.answer import Asked
from vllm_specdec_exporter.per_request.observation import Source
from vllm_specdec_exporter.requests import Requests

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_specdec_exporter.config import Config

VARIABLE = "VLLM_SPECDEC_EXPORTER_REQUESTS_TYPE_HEADER"
CHATS = "/v1/chat/completions"


def load(
    flags: dict[str, Any] | None = None, environment: dict[str, str] | None = None, file: str = ""
) -> Config:
    return config.load(flags or {}, environment or {}, file)


def written(path: Path, document: object) -> str:
    file = path / "config.yml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


class TestNoTypeHeader:
    def kind(self, found: Config) -> str:
        """The type of a chat whose client names one."""
        return found.requests.classification.type_of(CHATS, {"x-request-type": "ada@home"[:3]}, Asked())

    def test_it_is_there_by_default(self) -> None:
        """Clients name types where nothing is said."""
        assert self.kind(load()) == "ada"

    @pytest.mark.parametrize("text", ["", " "])
    def test_an_empty_flag(self, text: str) -> None:
        """Then they name none, and the route is the type."""
        assert self.kind(load({"requests.type-header": text})) == "chat"

    def test_an_empty_variable(self) -> None:
        """It says as much, unlike that of other settings; and a flag beats it."""
        assert self.kind(load({}, {VARIABLE: ""})) == "chat"
        assert self.kind(load({"requests.type-header": "X-Request-Type"}, {VARIABLE: ""})) == "ada"
        assert load({}, {"VLLM_SPECDEC_EXPORTER_REQUESTS_WINDOW": ""}).requests.window_seconds == 1800

    @pytest.mark.parametrize("value", ["", None])
    def test_in_the_file(self, value: str | None, tmp_path: Path) -> None:
        """As text, or as nothing behind the colon; the environment beats it."""
        file = written(tmp_path, {"requests": {"type_header": value}})

        assert self.kind(load({}, {}, file)) == "chat"
        assert self.kind(load({}, {VARIABLE: "X-Request-Type"}, file)) == "ada"

    def test_rules_go_on(self) -> None:
        """They are the operator's, also where they look into that header."""
        found = load({"requests.type-header": "", "requests.type": ["mine=header.x-request-type:a*"]})

        assert self.kind(found) == "mine"

    def test_what_is_shown(self) -> None:
        """The page of settings says that there is none."""
        assert load({"requests.type-header": ""}).shown["requests.type_header"] == ""

    def test_other_settings_that_are_nothing(self, tmp_path: Path) -> None:
        """`null` in the file still leaves the default of those that cannot be empty."""
        assert load({}, {}, written(tmp_path, {"requests": {"window": None}})).requests.window_seconds == 1800


class TestWithoutEffect:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("tap.upstream", "http://127.0.0.1:8001"),
            ("tap.ask-for-usage", "true"),
            ("tap.drain-timeout", "10s"),
            ("tap.cert-file", __file__),
            ("tap.key-file", __file__),
        ],
    )
    def test_of_a_tap_that_is_not_there(self, name: str, value: str, tmp_path: Path) -> None:
        """Wherever it is said: somebody takes the tap for switched on, and is told what is missing."""
        message = f"--{name} needs --tap.listen-address, such as :9852: without it there is no tap"
        key = name.removeprefix("tap.").replace("-", "_")
        variable = f"VLLM_SPECDEC_EXPORTER_TAP_{key.upper()}"
        for flags, environment, file in (
            ({name: value}, {}, ""),
            ({}, {variable: value}, ""),
            ({}, {}, written(tmp_path, {"tap": {key: value}})),
        ):
            with pytest.raises(ConfigError) as error:
                load(flags, environment, file)
            assert str(error.value) == message

    @pytest.mark.parametrize(
        ("name", "value"), [("tap.ask-for-usage", "false"), ("tap.drain-timeout", "25s")]
    )
    def test_what_says_the_default(self, name: str, value: str) -> None:
        """It changes nothing, with a tap or without."""
        assert load({name: value}).tap is None

    def test_a_header_for_no_tenant(self) -> None:
        """All tenants would be one."""
        with pytest.raises(ConfigError) as error:
            load({"requests.tenant-header": "X-Team"})
        assert str(error.value) == (
            "--requests.tenant-header needs --requests.tenant: the tenants to tell apart, all others are one"
        )
        assert load({"requests.tenant-header": "X-Team", "requests.tenant": ["a"]}).requests is not None

    def test_the_process_says_so(self) -> None:
        """With the exit code of bad usage, before anything listens."""
        outcome = run("serve", "--tap.upstream", "http://127.0.0.1:8001", "--config.check")

        assert (outcome.code, outcome.out) == (2, "")
        assert "--tap.upstream needs --tap.listen-address" in outcome.err


class TestRoom:
    def test_more_groups_than_there_is_room_for(self) -> None:
        """A table of types and temperatures that no model's groups fit into is refused, with its numbers."""
        bounds = [str(n / 10) for n in range(38)]
        rules = [f"t{n}=model:m{n}" for n in range(10)]

        assert load({"requests.temperature-bound": bounds, "requests.type": rules}).requests is not None
        with pytest.raises(ConfigError) as error:
            load({"requests.temperature-bound": bounds, "requests.type": [*rules, "more=model:*"]})
        assert str(error.value) == (
            "--requests.type, --requests.temperature-bound: 16 types, with the routes and `other`, in 40 "
            "buckets of temperature are 640 groups; allowed: up to 600"
        )

    def test_several_rules_of_one_name(self) -> None:
        """They are one type."""
        rules = [f"code=model:m{n}" for n in range(500)]

        assert len(load({"requests.type": rules}).requests.classification.rules) == 500

    def test_the_log_tells_once_of_each_kind_of_name(self, caplog: pytest.LogCaptureFixture) -> None:
        """However many requests come with names for which there is no room, also after a reload."""
        found = Requests(load({"push.bearer-token-file": __file__}), lambda: 0.0)
        with caplog.at_level(logging.WARNING):
            for number in range(50):
                found.observe(Source.PUSH, request(82, request_type=f"t{number}"))
            found.use(load({"push.bearer-token-file": __file__}))
            for number in range(50):
                found.observe(Source.PUSH, request(82, request_type=f"t{number}", model_name=f"m{number}"))
        lines = [(line.message, vars(line)["fields"]) for line in caplog.records]

        assert lines == [
            ("no room for more names of requests", {"label": "type"}),
            ("no room for more names of requests", {"label": "model"}),
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

    def test_requests_that_gain_by_them(self, tmp_path: Path) -> None:
        """One of 500 that loses is no problem, neither in words nor for a script."""
        path = tmp_path / "file"
        entries = list(pairs((CODE,)))[:500]
        for place, entry in enumerate(entries):
            counts = {"num_spec_steps": 20, "num_draft_tokens": 60}
            counts["num_accepted_draft_tokens"] = 27 if place else 10
            entry["response"]["metrics"]["speculative_decoding"] = counts
        path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
        zones = (
            "--threshold",
            "disable_acceptance_ratio=0.3",
            "--threshold",
            "break_even_acceptance_ratio=0.4",
        )
        outcome = run("requests", str(path), *zones)

        assert (outcome.code, outcome.err) == (0, "")
        assert "\n  GAINING  " in outcome.out
        assert "problem" not in outcome.out
        assert run("requests", str(path)).code == 1
