"""Grouping of requests: rules, types, tenants, buckets of temperature, and limits of
labels.
"""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import refusal
from vllm_specdec_exporter.per_request.grouping import (
    OTHER,
    UNSET,
    Classification,
    Temperatures,
    TypeRule,
    clean_model,
    clean_type,
    parse_rule,
)
from vllm_specdec_exporter.per_request.openai_api import RequestFields
from vllm_specdec_exporter.per_request.routes import ROUTES

CHAT = "/v1/chat/completions"
#: Any bounds that the options allow, including neighbours that differ only in their
#: last digit.
BOUNDS = st.lists(
    st.floats(0, 4)
    | st.sampled_from(
        [0.0, -0.0, 1e-9, 1e-300, 0.1234567, 0.1234568, 0.1234569, 1e22, 1e300]
    ),
    min_size=1,
    max_size=40,
    unique=True,
).map(lambda bounds: tuple(sorted(bounds)))


class TestRules:
    def test_parsing(self) -> None:
        """A name, a place and a pattern that may contain colons; names of headers have
        no case.
        """
        for text, *rule in (
            ("code=model:*coder*", "code", "model", "*coder*"),
            (" batch = HEADER.X-Queue : bulk* ", "batch", "header.x-queue", "bulk*"),
            ("a:b=model:m=1:2", "a:b", "model", "m=1:2"),
            ("a=header.x:[ab]?:c", "a", "header.x", "[ab]?:c"),
        ):
            assert parse_rule(text) == TypeRule(*rule), (text, rule)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "code",
            "code=",
            "code=model",
            "code=model:",
            "code=model: ",
            "=model:x",
            "model:x",
            "code=body:x",
            "code=header:x",
            "code=header.:x",
            "code=header.a b:x",
            "code=models:x",
        ],
    )
    def test_the_error_has_the_allowed_syntax(self, text: str) -> None:
        assert refusal(ValueError, parse_rule, text) == (
            "allowed: NAME=WHERE:PATTERN, where WHERE is model, path, field or "
            "header.NAME, such as code=model:*coder*"
        )

    @pytest.mark.parametrize("name", ["my code", "é", "_x", "x" * 65, "a\nb", "{x}"])
    def test_a_type_becomes_a_label_so_its_name_is_restricted(self, name: str) -> None:
        assert refusal(ValueError, parse_rule, f"{name}=model:x") == (
            "NAME is a letter or digit, then up to 63 of letters, digits and _.:/-, "
            "such as in code=model:*coder*"
        )

    def test_matching(self) -> None:
        """Shell patterns with case; paths without their query; a header or field must
        be present.
        """
        request = RequestFields(
            "org/Qwen-Coder-7b", fields=frozenset({"tools", "messages"})
        )
        headers = {"x-queue": "bulk-2", "x-empty": ""}
        for rule, matches in {
            "model:*Coder*": True,
            "model:*coder*": False,
            "model:*[Cc]oder-7?": True,
            "model:*coder-7": False,
            "path:/rag/*": True,
            "path:*a=b*": False,
            "header.X-Queue:bulk*": True,
            "header.x-empty:*": True,
            "header.x-other:*": False,
            "field:tools": True,
            "field:t*": True,
            "field:response_format": False,
        }.items():
            matched = parse_rule(f"x={rule}").matches(
                "/rag/v1/chat/completions?a=b", headers, request
            )
            assert matched is matches, rule


class TestType:
    RULES = (
        parse_rule("code=model:*coder*"),
        parse_rule("agent=field:tools"),
        parse_rule("late=model:*"),
    )

    def test_priority(self) -> None:
        """The header, then the first matching rule; an invalid header gives `other`."""
        classification = Classification(type_header="x-type", rules=self.RULES)
        tools = frozenset({"tools"})
        for header, request, expected in (
            ("rag", RequestFields("coder"), "rag"),
            (" rag ", RequestFields("coder"), "rag"),
            ("  ", RequestFields("coder", fields=tools), "code"),
            ("", RequestFields("llama", fields=tools), "agent"),
            ("", RequestFields("llama"), "late"),
            ("my name is Ada", RequestFields("coder"), OTHER),
        ):
            assert (
                classification.type_of(CHAT, {"x-type": header}, request) == expected
            ), (header, request, expected)

    @pytest.mark.parametrize(
        ("path", "kind"), [*ROUTES.items(), ("/v1/embeddings", OTHER)]
    )
    def test_route(self, path: str, kind: str) -> None:
        """Without header and rule, the type is that of the route."""
        assert (
            Classification().type_of(f"/prefix{path}?x=1", {"": "rag"}, RequestFields())
            == kind
        )

    def test_valid_names(self) -> None:
        """Types: letters, digits and some signs of ASCII, up to 64.

        Models: printable text up to 256.
        """
        for text in ("chat", "v1/rag:search_2.0-x", "x" * 64):
            assert clean_type(text) == text, text
        for text in ("x" * 65, "", "a b", "a\n", "-a", 'a"} 1', "ａ", "١"):
            assert clean_type(text) == OTHER, text
        for text in (
            "",
            "meta-llama/Llama-3.1-8B-Instruct",
            "/models/my model",
            "通义千问",
            "x" * 256,
        ):
            assert clean_model(text) == text, text
        for text in ("x" * 257, "a\nb", "a\0b", "\x1b[31mred", "\u202egnp", "\ud800"):
            assert clean_model(text) == OTHER, text


def test_only_configured_tenants_are_named() -> None:
    """Every other is `other`; without a configured header there is no tenant."""
    classification = Classification(
        tenant_header="x-tenant", tenants=frozenset({"acme", "globex"})
    )
    named = {
        "acme": "acme",
        " acme ": "acme",
        "ACME": OTHER,
        "ada@example.org": OTHER,
        "": "",
        "  ": "",
    }

    assert {
        name: classification.tenant_of({"x-tenant": name}) for name in named
    } == named
    assert [
        classification.tenant_of(headers) for headers in ({}, {"x-user": "acme"})
    ] == ["", ""]
    assert (
        Classification(tenants=frozenset({"acme"})).tenant_of(
            {"": "acme", "x-tenant": "acme"}
        )
        == ""
    )


class TestTemperatures:
    @pytest.mark.parametrize(
        ("default", "bucket"),
        [(None, UNSET), (0.0, "0"), (0.6, "0.5-0.7"), (1.5, "1+")],
    )
    def test_default_of_the_server(self, default: float | None, bucket: str) -> None:
        """It applies to requests without a temperature only."""
        buckets = Temperatures(default=default)
        assert (buckets.bucket(None), buckets.bucket(0.1)) == (bucket, "0-0.5")

    @pytest.mark.parametrize(
        ("bounds", "names"),
        [
            (Temperatures().bounds, "0 0-0.5 0.5-0.7 0.7-1 1+"),
            ((0.5, 1.0), "0-0.5 0.5-1 1+"),
            ((-0.0, 1.0), "0 0-1 1+"),
            ((1e-9,), "0-1e-09 1e-09+"),
            ((1000000.0, 12345678.0), "0-1000000 1000000-12345678 12345678+"),
            ((0.1234567, 0.1234568), "0-0.1234567 0.1234567-0.1234568 0.1234568+"),
        ],
    )
    def test_names(self, bounds: tuple[float, ...], names: str) -> None:
        """In ascending order, each with its upper bound; close bounds are written with
        all their digits.
        """
        assert [
            Temperatures(bounds).bucket(bound) for bound in (*bounds, math.inf)
        ] == names.split()

    @given(BOUNDS, st.lists(st.floats(0, allow_nan=False), min_size=2))
    def test_order(self, bounds: tuple[float, ...], temperatures: list[float]) -> None:
        """Two temperatures share a bucket if and only if no bound lies between them."""
        buckets = Temperatures(bounds)
        for cooler, hotter in pairwise(sorted(temperatures)):
            between = any(cooler <= bound < hotter for bound in bounds)
            assert (buckets.bucket(cooler) != buckets.bucket(hotter)) is between, (
                cooler,
                hotter,
            )
