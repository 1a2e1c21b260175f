from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from vllm_specdec_exporter.options import (
    ConfigError,
    Option,
    Parser,
    add_flags,
    gather,
    unknown_variables,
)

if TYPE_CHECKING:
    import argparse


def number(text: str) -> int:
    if not text.isdecimal():
        msg = "a whole number is needed"
        raise ValueError(msg)
    return int(text)


SIZE = Option("pool.max-size", number, "3", "How many.")
NAMES = Option("name", str.upper, ("a", "b"), "Names; 100 % of them.", repeatable=True)
KEY = Option("secret.key", number, None, "A key.", mask=lambda text: "*" * len(text[:3]))
HEADERS = Option("header", str, (), "Headers.", repeatable=True, separator="\n")
DATA = Option("data", str, None, "JSON.")
TABLE = (SIZE, NAMES, KEY, HEADERS, DATA)

DEFAULTS = {"pool.max-size": 3, "name": ("A", "B"), "secret.key": None, "header": (), "data": None}


def collect(
    flags: dict[str, Any] | None = None, environment: dict[str, str] | None = None, document: object = None
) -> dict[str, Any]:
    values, _ = gather(TABLE, flags or {}, environment or {}, document, "conf.yml")
    return values


class TestSpelling:
    def test_one_setting(self) -> None:
        """Flag, variable and key of a setting follow from its name."""
        assert (
            SIZE.flag,
            SIZE.variable,
            SIZE.key,
        ) == ("--pool.max-size", "VLLM_SPECDEC_EXPORTER_POOL_MAX_SIZE", "pool.max_size")


FLAG = {"pool.max-size": "1"}
ENVIRONMENT = {"VLLM_SPECDEC_EXPORTER_POOL_MAX_SIZE": "2"}
DOCUMENT = {"pool": {"max_size": 4}}


class TestPrecedence:
    @pytest.mark.parametrize(
        ("flags", "environment", "document", "expected"),
        [
            ({}, {}, None, 3),
            ({}, {}, DOCUMENT, 4),
            ({}, ENVIRONMENT, None, 2),
            ({}, ENVIRONMENT, DOCUMENT, 2),
            (FLAG, {}, DOCUMENT, 1),
            (FLAG, ENVIRONMENT, None, 1),
            (FLAG, ENVIRONMENT, DOCUMENT, 1),
            ({"pool.max-size": None}, ENVIRONMENT, DOCUMENT, 2),
        ],
    )
    def test_who_wins(
        self, flags: dict[str, Any], environment: dict[str, str], document: object, expected: int
    ) -> None:
        """A flag beats the environment, which beats the file, which beats the default."""
        assert {**DEFAULTS, "pool.max-size": expected} == collect(flags, environment, document)

    def test_several_values_are_not_mixed(self) -> None:
        """A repeatable setting comes from one place as a whole."""
        values = collect({"name": ["x"]}, {"VLLM_SPECDEC_EXPORTER_NAME": "y,z"}, {"name": ["w"]})

        assert values["name"] == ("X",)

    def test_a_value_that_is_beaten_is_not_looked_at(self) -> None:
        """What does not count cannot be wrong."""
        assert collect(FLAG, {"VLLM_SPECDEC_EXPORTER_POOL_MAX_SIZE": "many"})["pool.max-size"] == 1


class TestRepeatable:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("x", ("X",)),
            ("x,y", ("X", "Y")),
            (" x , y ", ("X", "Y")),
            ("x,,y,", ("X", "Y")),
            ("", ("A", "B")),
            (",", ()),
        ],
    )
    def test_in_the_environment(self, text: str, expected: tuple[str, ...]) -> None:
        """Values are separated by commas; empty ones are none; an empty variable leaves the default."""
        assert expected == collect({}, {"VLLM_SPECDEC_EXPORTER_NAME": text})["name"]

    def test_with_another_separator(self) -> None:
        """Values that may hold commas stand one a line."""
        text = "Accept: a, b\nX-Y: z\n"

        assert collect({}, {"VLLM_SPECDEC_EXPORTER_HEADER": text})["header"] == ("Accept: a, b", "X-Y: z")

    @pytest.mark.parametrize(
        ("value", "expected"),
        [("x", ("X",)), (["x", "y"], ("X", "Y")), ([], ()), ({"x": 1, "y": 2}, ("X=1", "Y=2")), (5, ("5",))],
    )
    def test_in_the_file(self, value: object, expected: tuple[str, ...]) -> None:
        """The file takes one value, a list, or a mapping where values are pairs."""
        assert expected == collect(document={"name": value})["name"]

    def test_pairs_with_colons(self) -> None:
        """Headers as a mapping."""
        assert collect(document={"header": {"A": "b"}})["header"] == ("A: b",)


class TestFile:
    @pytest.mark.parametrize(
        "document",
        [
            {"pool": {"max_size": 4}},
            {"pool": {"max-size": 4}},
            {"pool": {"max_size": "4"}},
            {"pool.max_size": 4},
            {"pool.max-size": 4},
        ],
    )
    def test_spellings(self, document: object) -> None:
        """Levels may be nested or dotted, words joined by either sign, and numbers bare."""
        assert collect(document=document)["pool.max-size"] == 4

    @pytest.mark.parametrize(
        "document", [None, {}, {"pool": None}, {"pool": {}}, {"pool": {"max_size": None}}]
    )
    def test_nothing_said(self, document: object) -> None:
        """Empty files, sections and keys leave the defaults."""
        assert collect(document=document) == DEFAULTS

    def test_a_mapping_as_a_value(self) -> None:
        """JSON may be written as YAML."""
        document = {"data": {"method": "ngram", "n": 4, "deep": {"x": True}}}

        assert collect(document=document)["data"] == '{"method": "ngram", "n": 4, "deep": {"x": true}}'

    @pytest.mark.parametrize(("value", "expected"), [(True, "true"), (False, "false"), (1.5, "1.5")])
    def test_scalars(self, value: object, expected: str) -> None:
        """YAML's own types are read as the flag would write them."""
        assert expected == collect(document={"data": value})["data"]

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            (
                {"pool": {"max_sise": 4}},
                "pool.max_sise in conf.yml: no such setting; did you mean pool.max_size?",
            ),
            ({"nam": 4}, "nam in conf.yml: no such setting; did you mean name?"),
            (
                {"zzz": 4},
                "zzz in conf.yml: no such setting; known: data, header, name, pool.max_size, secret.key",
            ),
            (
                {1: 2},
                "1 in conf.yml: no such setting; known: data, header, name, pool.max_size, secret.key",
            ),
            ({"pool": 4}, "pool in conf.yml: a mapping of settings is expected"),
            ({"pool": [4]}, "pool in conf.yml: a mapping of settings is expected"),
            ([1], "conf.yml: a mapping of settings is expected"),
            ("text", "conf.yml: a mapping of settings is expected"),
            ({"pool": {"max_size": [4]}}, "pool.max_size in conf.yml: takes one value, not a list"),
        ],
    )
    def test_what_is_wrong(self, document: object, message: str) -> None:
        """An unknown key is named with the nearest known one; a wrong shape with the right one."""
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
            collect(document=document)


class TestBadValues:
    @pytest.mark.parametrize(
        ("flags", "environment", "document", "message"),
        [
            ({"pool.max-size": "many"}, {}, None, '--pool.max-size "many": a whole number is needed'),
            (
                {},
                {"VLLM_SPECDEC_EXPORTER_POOL_MAX_SIZE": "many"},
                None,
                'VLLM_SPECDEC_EXPORTER_POOL_MAX_SIZE "many": a whole number is needed',
            ),
            (
                {},
                {},
                {"pool": {"max_size": "many"}},
                'pool.max_size in conf.yml "many": a whole number is needed',
            ),
            ({"pool.max-size": 'a"\n'}, {}, None, '--pool.max-size "a\\"\\n": a whole number is needed'),
            ({"pool.max-size": "é"}, {}, None, '--pool.max-size "é": a whole number is needed'),
            ({"secret.key": "hunter2"}, {}, None, '--secret.key "***": a whole number is needed'),
            (
                {},
                {"VLLM_SPECDEC_EXPORTER_SECRET_KEY": "hunter2"},
                None,
                'VLLM_SPECDEC_EXPORTER_SECRET_KEY "***": a whole number is needed',
            ),
            (
                {},
                {},
                {"secret": {"key": "hunter2"}},
                'secret.key in conf.yml "***": a whole number is needed',
            ),
        ],
    )
    def test_the_message(
        self, flags: dict[str, Any], environment: dict[str, str], document: object, message: str
    ) -> None:
        """One line names the source, what may be shown of the value, and what is allowed."""
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
            collect(flags, environment, document)


class TestShown:
    def test_what_may_be_shown(self) -> None:
        """Beside the values stands what may be shown of each, by the file's keys, as it was written."""
        _, shown = gather(
            TABLE, {"pool.max-size": "07", "name": ["x"]}, {}, {"secret": {"key": 123456}}, "conf.yml"
        )

        assert shown == {
            "pool.max_size": "07",
            "name": ["x"],
            "secret.key": "***",
            "header": [],
            "data": None,
        }


class TestUnknownVariables:
    def test_misspelt(self) -> None:
        """Variables with the prefix that belong to no setting are told, sorted."""
        environment = {
            "VLLM_SPECDEC_EXPORTER_POOL_MAX_SISE": "1",
            "VLLM_SPECDEC_EXPORTER_NAMES": "1",
            "VLLM_SPECDEC_EXPORTER_NAME": "1",
            "VLLM_PORT": "1",
            "HOME": "/",
        }

        assert unknown_variables(TABLE, environment) == [
            "VLLM_SPECDEC_EXPORTER_NAMES",
            "VLLM_SPECDEC_EXPORTER_POOL_MAX_SISE",
        ]

    @pytest.mark.parametrize("name", ["PORTS", "POOL_PORT_SIZE", "SERVICE", "SERVICE_HOSTS", "PORT_TCP"])
    def test_what_only_looks_like_a_service_link(self, name: str) -> None:
        """A name that Kubernetes would not form is somebody's mistake."""
        variable = f"VLLM_SPECDEC_EXPORTER_{name}"

        assert unknown_variables(TABLE, {variable: "1"}) == [variable]

    @pytest.mark.parametrize(
        "name",
        [
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_HTTP",
            "PORT",
            "PORT_9850_TCP",
            "PORT_9850_TCP_ADDR",
            "PORT_9850_TCP_PORT",
            "PORT_9850_TCP_PROTO",
            "PORT_53_UDP_ADDR",
            "METRICS_SERVICE_HOST",
            "METRICS_SERVICE_PORT_HTTP",
            "METRICS_PORT",
            "METRICS_PORT_9850_TCP_ADDR",
        ],
    )
    def test_kubernetes_service_links(self, name: str) -> None:
        """What Kubernetes sets for a Service whose name begins like the exporter's is nobody's mistake."""
        assert unknown_variables(TABLE, {f"VLLM_SPECDEC_EXPORTER_{name}": "tcp://10.0.0.1:9850"}) == []


class TestFlags:
    @staticmethod
    def parser() -> argparse.ArgumentParser:
        parser = Parser("tool", "A tool.")
        add_flags(parser, TABLE)
        return parser

    def test_given_flags(self) -> None:
        """A flag's value is its text; a repeatable one collects; the others are left to `gather`."""
        flags = vars(self.parser().parse_args(["--pool.max-size", "5", "--name", "x", "--name=y"]))

        assert flags == {
            "pool.max-size": "5",
            "name": ["x", "y"],
            "secret.key": None,
            "header": None,
            "data": None,
        }
        assert collect(flags) == {**DEFAULTS, "pool.max-size": 5, "name": ("X", "Y")}

    def test_help(self) -> None:
        """The help tells default and variable of each."""
        text = " ".join(self.parser().format_help().split())

        assert "How many. Default: 3. [$VLLM_SPECDEC_EXPORTER_POOL_MAX_SIZE]" in text
        assert "Names; 100 % of them. Default: a, b. [$VLLM_SPECDEC_EXPORTER_NAME]" in text
        assert "A key. [$VLLM_SPECDEC_EXPORTER_SECRET_KEY]" in text

    @pytest.mark.parametrize(
        "arguments", [["--pool.max-siz", "5"], ["--nam", "5"], ["--pool.max-size"], ["x"]]
    )
    def test_errors(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        """A flag that does not exist, even abbreviated, ends the program with one line and status 2."""
        with pytest.raises(SystemExit) as raised:
            self.parser().parse_args(arguments)

        error = capsys.readouterr().err
        assert raised.value.code == 2
        assert re.fullmatch(r"tool: error: [^\n]+ \(see tool --help\)\n", error)
