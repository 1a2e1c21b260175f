"""Where the value of an option comes from: flag, environment, file or default; and what
is wrong with it.
"""

from typing import Any

import pytest

from support.builders import refusal
from vllm_specdec_exporter.config.options import (
    ConfigError,
    Option,
    gather,
    unknown_variables,
)


def number(text: str) -> int:
    if not text.isdecimal():
        msg = "a whole number is needed"
        raise ValueError(msg)
    return int(text)


SIZE = Option("pool.max-size", number, "3", "How many.")
NAMES = Option("name", str.upper, ("a", "b"), "Names; 100 % of them.", repeatable=True)
KEY = Option(
    "secret.key", number, None, "A key.", mask=lambda text: "*" * len(text[:3])
)
HEADERS = Option("header", str, (), "Headers.", repeatable=True, separator="\n")
DATA = Option("data", str, None, "JSON.")
TABLE = (SIZE, NAMES, KEY, HEADERS, DATA)

DEFAULTS = {
    "pool.max-size": 3,
    "name": ("A", "B"),
    "secret.key": None,
    "header": (),
    "data": None,
}
PREFIX = "VLLM_SPECDEC_EXPORTER_"


def collect(
    flags: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    document: object = None,
) -> dict[str, Any]:
    values, _ = gather(
        TABLE,
        flags or {},
        environment=environment or {},
        document=document,
        file="conf.yml",
    )
    return values


FLAG = {"pool.max-size": "1"}
ENVIRONMENT = {f"{PREFIX}POOL_MAX_SIZE": "2"}
DOCUMENT = {"pool": {"max_size": 4}}


class TestPrecedence:
    def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
        self,
    ) -> None:
        for flags, environment, document, expected in (
            ({}, {}, None, 3),
            ({}, {}, DOCUMENT, 4),
            ({}, ENVIRONMENT, DOCUMENT, 2),
            (FLAG, ENVIRONMENT, DOCUMENT, 1),
            ({"pool.max-size": None}, ENVIRONMENT, DOCUMENT, 2),
            # what is beaten is not looked at
            (FLAG, {f"{PREFIX}POOL_MAX_SIZE": "many"}, None, 1),
        ):
            assert collect(flags, environment, document) == {
                **DEFAULTS,
                "pool.max-size": expected,
            }, (flags, environment, document)

    def test_a_repeatable_setting_comes_from_one_place_as_a_whole(self) -> None:
        assert collect({"name": ["x"]}, {f"{PREFIX}NAME": "y,z"}, {"name": ["w"]})[
            "name"
        ] == ("X",)


class TestRepeatable:
    def test_in_the_environment(self) -> None:
        """Separated by commas; empty values are none; an empty variable leaves the
        default.
        """
        expected = {
            "x": ("X",),
            " x , y ": ("X", "Y"),
            "x,,y,": ("X", "Y"),
            "": ("A", "B"),
            ",": (),
        }
        assert {
            text: collect({}, {f"{PREFIX}NAME": text})["name"] for text in expected
        } == expected

    def test_values_that_may_hold_commas_stand_one_a_line(self) -> None:
        values = collect({}, {f"{PREFIX}HEADER": "Accept: a, b\nX-Y: z\n"})

        assert values["header"] == ("Accept: a, b", "X-Y: z")

    def test_in_the_file(self) -> None:
        """One value, a list, or a mapping if values are pairs; headers have colons."""
        for value, expected in (
            ("x", ("X",)),
            (["x", "y"], ("X", "Y")),
            ([], ()),
            (5, ("5",)),
            ({"x": 1, "y": 2}, ("X=1", "Y=2")),
        ):
            assert collect(document={"name": value})["name"] == expected, value
        assert collect(document={"header": {"A": "b"}})["header"] == ("A: b",)


UNKNOWN = "no such setting; known: data, header, name, pool.max_size, secret.key"


class TestFile:
    def test_spellings(self) -> None:
        """Levels may be nested or dotted, words joined by either sign, and numbers
        bare.
        """
        for document in (
            {"pool": {"max_size": 4}},
            {"pool": {"max-size": 4}},
            {"pool": {"max_size": "4"}},
            {"pool.max_size": 4},
            {"pool.max-size": 4},
        ):
            assert collect(document=document)["pool.max-size"] == 4, document

    def test_empty_files_sections_and_keys_leave_the_defaults(self) -> None:
        for document in (
            None,
            {},
            {"pool": None},
            {"pool": {}},
            {"pool": {"max_size": None}},
        ):
            assert collect(document=document) == DEFAULTS, document

    def test_types_of_yaml_are_read_as_the_flag_would_write_them(self) -> None:
        for value, expected in (
            (True, "true"),
            (False, "false"),
            (1.5, "1.5"),
            (
                {"method": "ngram", "deep": {"x": True}},
                '{"method": "ngram", "deep": {"x": true}}',
            ),
        ):
            assert collect(document={"data": value})["data"] == expected, value

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            ({"header": {"X-Scope": None}}, 'header in conf.yml: "X-Scope": null: '),
            ({"header": {"A": "b", "C": ["d"]}}, 'header in conf.yml: "C": a list: '),
            ({"name": ["x", None]}, "name in conf.yml: null: "),
            ({"name": [["x", "y"]]}, "name in conf.yml: a list: "),
        ],
    )
    def test_a_list_or_a_mapping_contains_single_values(
        self, document: object, message: str
    ) -> None:
        """Null is not the text `None`, and a list not the text that Python shows."""
        refused = refusal(ConfigError, lambda: collect(document=document))
        assert refused.startswith(message)

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            (
                {"pool": {"max_sise": 4}},
                "pool.max_sise in {}: no such setting; did you mean pool.max_size?",
            ),
            ({"zzz": 4}, f"zzz in {{}}: {UNKNOWN}"),
            ({1: 2}, f"1 in {{}}: {UNKNOWN}"),
            ({"pool": 4}, "pool in {}: a mapping of settings is expected"),
            ({"pool": [4]}, "pool in {}: a mapping of settings is expected"),
            ([1], "{}: a mapping of settings is expected"),
            ("text", "{}: a mapping of settings is expected"),
            (
                {"pool": {"max_size": [4]}},
                "pool.max_size in {}: takes one value, not a list",
            ),
        ],
    )
    def test_what_is_wrong(self, document: object, message: str) -> None:
        """An unknown key is named with the nearest known one; a wrong shape with the
        right one.
        """
        refused = refusal(ConfigError, lambda: collect(document=document))
        assert refused == message.format("conf.yml")


@pytest.mark.parametrize(
    ("flags", "environment", "document", "where"),
    [
        ({"pool.max-size": "many"}, {}, None, '--pool.max-size "many"'),
        ({"pool.max-size": 'a"\n'}, {}, None, '--pool.max-size "a\\"\\n"'),
        ({"pool.max-size": "é"}, {}, None, '--pool.max-size "é"'),
        ({"secret.key": "hunter2"}, {}, None, '--secret.key "***"'),
        ({}, {f"{PREFIX}SECRET_KEY": "hunter2"}, None, f'{PREFIX}SECRET_KEY "***"'),
        ({}, {}, {"secret": {"key": "hunter2"}}, 'secret.key in conf.yml "***"'),
    ],
)
def test_a_bad_value_is_named_with_its_source_and_what_may_be_shown_of_it(
    flags: dict[str, Any], environment: dict[str, str], document: object, where: str
) -> None:
    refused = refusal(ConfigError, lambda: collect(flags, environment, document))
    assert refused == f"{where}: a whole number is needed"


def test_beside_the_values_stands_what_may_be_shown_of_each() -> None:
    """By the file's keys, as it was written."""
    flags = {"pool.max-size": "07", "name": ["x"]}
    _, shown = gather(
        TABLE,
        flags,
        environment={},
        document={"secret": {"key": 123456}},
        file="conf.yml",
    )

    expected = {
        "pool.max_size": "07",
        "name": ["x"],
        "secret.key": "***",
        "header": [],
        "data": None,
    }
    assert shown == expected


def test_variables_that_belong_to_no_setting_are_told_sorted() -> None:
    """Also what Kubernetes would not form of a Service's name."""
    unknown = [
        "NAMES",
        "POOL_MAX_SISE",
        "POOL_PORT_SIZE",
        "PORTS",
        "PORT_TCP",
        "SERVICE",
        "SERVICE_HOSTS",
    ]
    environment = {f"{PREFIX}{name}": "1" for name in [*reversed(unknown), "NAME"]}

    ignored = unknown_variables(TABLE, {**environment, "VLLM_PORT": "1", "HOME": "/"})
    assert ignored == [f"{PREFIX}{name}" for name in unknown]
