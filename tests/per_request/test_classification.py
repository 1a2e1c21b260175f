"""Classification: which type a request is of, whose it is, and which names are never shown."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_specdec_exporter.requests.grouping import (
    OTHER,
    Classification,
    TypeRule,
    clean_model,
    clean_type,
    parse_rule,
)
from vllm_specdec_exporter.requests.openai_api import ROUTES, RequestFields

if TYPE_CHECKING:
    from collections.abc import Mapping

CHAT = "/v1/chat/completions"
NAME = set(string.ascii_letters + string.digits + "_.:/-")


def fits(
    rule: str, path: str = CHAT, headers: Mapping[str, str] | None = None, asked: RequestFields | None = None
) -> bool:
    return parse_rule(rule).matches(path, headers or {}, asked or RequestFields())


class TestRules:
    def test_reading(self) -> None:
        """A name, where to look, and a pattern that may hold colons; headers have no case."""
        for text, *rule in (
            ("code=model:*coder*", "code", "model", "*coder*"),
            ("tools=field:tools", "tools", "field", "tools"),
            ("rag=path:/rag/*", "rag", "path", "/rag/*"),
            (" batch = HEADER.X-Queue : bulk* ", "batch", "header.x-queue", "bulk*"),
            ("a:b=model:m=1:2", "a:b", "model", "m=1:2"),
            ("a=header.x:[ab]?:c", "a", "header.x", "[ab]?:c"),
        ):
            assert parse_rule(text) == TypeRule(*rule)

    def test_no_rules(self) -> None:
        """What cannot be a rule is refused with what is allowed; a type is a label, and needs such a name."""
        form = (
            "allowed: NAME=WHERE:PATTERN, where WHERE is model, path, field or header.NAME, such as "
            "code=model:*coder*"
        )
        name = (
            "NAME is a letter or digit, then up to 63 of letters, digits and _.:/-, such as in "
            "code=model:*coder*"
        )
        rules = ["", "code", "code=", "code=model", "code=model:", "code=model: ", "=model:x", "model:x"]
        rules += [f"code={where}:x" for where in ("body", "header", "header.", "header.a b", "models")]
        names = [f"{name}=model:x" for name in ("my code", "é", "_x", "x" * 65, "a\nb", "{x}")]
        for message, texts in ((form, rules), (name, names)):
            for text in texts:
                with pytest.raises(ValueError, match="NAME") as error:
                    parse_rule(text)
                assert (text, str(error.value)) == (text, message)

    def test_by_model(self) -> None:
        """As in a shell, and with case."""
        for pattern, model, fitting in (
            ("*coder*", "org/Qwen-coder-7b", True),
            ("*coder*", "org/Qwen-Coder-7b", False),
            ("*[Cc]oder*", "org/Qwen-Coder-7b", True),
            ("m?", "m1", True),
            ("m?", "m", False),
            ("*", "", True),
        ):
            assert fits(f"x=model:{pattern}", asked=RequestFields(model_name=model)) is fitting

    def test_by_path(self) -> None:
        """Without its query."""
        assert fits("x=path:/rag/*", "/rag/v1/chat/completions?a=b")
        assert not fits("x=path:*a=b*", "/rag/v1/chat/completions?a=b")

    def test_by_header(self) -> None:
        """A header that was not sent fits nothing, not even every text."""
        assert fits("x=header.X-Queue:*", headers={"x-queue": ""})
        assert fits("x=header.x-queue:bulk*", headers={"x-queue": "bulk-2"})
        assert not fits("x=header.x-queue:*", headers={"x-other": "bulk"})

    def test_by_field(self) -> None:
        """A field that the request has, with something in it."""
        asked = RequestFields(fields=frozenset({"tools", "messages"}))

        assert fits("x=field:tools", asked=asked)
        assert fits("x=field:t*", asked=asked)
        assert not fits("x=field:response_format", asked=asked)


class TestType:
    RULES = (parse_rule("code=model:*coder*"), parse_rule("agent=field:tools"), parse_rule("late=model:*"))

    @pytest.mark.parametrize(
        ("headers", "asked", "expected"),
        [
            ({"x-type": "rag"}, RequestFields("coder"), "rag"),
            ({"x-type": " rag "}, RequestFields("coder"), "rag"),
            ({"x-type": "  "}, RequestFields("coder"), "code"),
            ({}, RequestFields("coder", fields=frozenset({"tools"})), "code"),
            ({}, RequestFields("llama", fields=frozenset({"tools"})), "agent"),
            ({}, RequestFields("llama"), "late"),
            ({"x-type": "my name is Ada"}, RequestFields("coder"), OTHER),
        ],
    )
    def test_who_says(self, headers: dict[str, str], asked: RequestFields, expected: str) -> None:
        """The header, else the first rule that fits; a header that holds no name is not made into one."""
        found = Classification(type_header="x-type", rules=self.RULES).type_of(CHAT, headers, asked)

        assert found == expected

    @pytest.mark.parametrize(("path", "kind"), [*ROUTES.items(), ("/v1/embeddings", OTHER)])
    def test_by_route(self, path: str, kind: str) -> None:
        """Where no rule fits, the route is the type."""
        assert Classification().type_of(f"/prefix{path}?x=1", {"": "rag"}, RequestFields()) == kind

    @given(st.text(max_size=80))
    def test_a_type_from_outside(self, text: str) -> None:
        """Whatever a client sends: a short name, or `other`."""
        found = clean_type(text)

        assert found in (text, OTHER)
        assert 0 < len(found) <= 64
        assert set(found) <= NAME

    def test_what_looks_like_a_type(self) -> None:
        """Letters, digits and a few signs of ASCII, up to 64."""
        for text in ("chat", "v1/rag:search_2.0-x", "x" * 64):
            assert clean_type(text) == text
        for text in ("x" * 65, "", "a b", "a\n", "-a", 'a"} 1', "ａ", "١"):
            assert clean_type(text) == OTHER


class TestTenant:
    KNOWN = Classification(tenant_header="x-tenant", tenants=frozenset({"acme", "globex"}))

    def test_only_known_tenants_are_named(self) -> None:
        """Every other is `other`; a request that names none has none; without a header none is told apart."""
        named = {"acme": "acme", " acme ": "acme", "ACME": OTHER, "ada@example.org": OTHER, "": "", "  ": ""}

        assert {name: self.KNOWN.tenant_of({"x-tenant": name}) for name in named} == named
        assert [self.KNOWN.tenant_of(headers) for headers in ({}, {"x-user": "acme"})] == ["", ""]
        assert Classification(tenants=frozenset({"acme"})).tenant_of({"": "acme", "x-tenant": "acme"}) == ""

    @given(st.text(max_size=12))
    def test_no_unknown_name_is_ever_kept(self, name: str) -> None:
        """Whatever comes in."""
        assert self.KNOWN.known_tenant(name) in {"acme", "globex", OTHER, ""}


def test_names_of_models() -> None:
    """A server may call its model what it likes; text that breaks a label, a log or a page is not shown."""
    for name in ("", "meta-llama/Llama-3.1-8B-Instruct", "/models/my model", "通义千问", "x" * 256):
        assert clean_model(name) == name
    for name in ("x" * 257, "a\nb", "a\0b", "\x1b[31mred", "\u202egnp", "\ud800"):
        assert clean_model(name) == OTHER
