"""Every code block of every page is run or checked, or its page says why not, and says so truly.

`PYTHONPATH=tests python -m docs.test_inventory` prints how many blocks there are of each kind.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.inventory import INDENTED, Block, blocks, blocks_of, pages, prose
from docs.taken import TAKEN
from docs.ways import Way, complaint, find, report

TESTS = Path(__file__).parents[1]


def block(text: str, language: str = "sh", reason: str = "", *, checked: bool = False) -> Block:
    return Block("page.md", 3, language, text, reason, checked)


def test_every_block_is_run_or_says_why_not() -> None:
    """Nothing goes unnoticed: each complaint has its file and line."""
    complaints = [text for one in blocks() if (text := complaint(one))]
    assert complaints == [], "\n".join(complaints)


def test_blocks_are_found() -> None:
    """In every page that has three backticks, and of every kind that is known."""
    with_fences = {path for path in pages() if "```" in path.read_text("utf-8")}
    assert {one.file for one in blocks() if one.language != INDENTED} == with_fences
    assert {find(one).way for one in blocks()} >= set(Way) - {Way.OUTPUT}
    assert len(blocks()) > 300


@pytest.mark.parametrize("row", TAKEN, ids=lambda row: f"{row.page} {' '.join(row.languages)}")
def test_other_tests_read_the_pages_that_they_are_said_to(row: object) -> None:
    """The test exists and names the page, the page exists and has such a block."""
    assert isinstance(row, type(TAKEN[0]))
    assert row.names in (TESTS / row.test).read_text("utf-8")
    assert any(row.has(one) for one in blocks())


# --- the finder


def test_fences_and_indented_blocks_are_found_with_their_markers() -> None:
    text = (
        "# Title\n\n<!-- not run: needs a cluster -->\n```sh\nkubectl get pods\n```\n\n"
        "1. A list:\n\n   <!-- checked, not run: a -->\n   ```yaml\n   a:\n     b: 1\n   ```\n\n"
        "So:\n\n    one\n      two\n\n    three\n\nEnd.\n\n<!-- not run: b -->\n\n    four\n"
    )
    assert blocks_of(text, "page.md") == [
        Block("page.md", 4, "sh", "kubectl get pods\n", "needs a cluster", checked=False),
        Block("page.md", 11, "yaml", "a:\n  b: 1\n", "a", checked=True),
        Block("page.md", 18, INDENTED, "one\n  two\n\nthree\n", "", checked=False),
        Block("page.md", 27, INDENTED, "four\n", "b", checked=False),
    ]
    assert len(prose(text).splitlines()) == len(text.splitlines())
    assert [line for line in prose(text).splitlines() if line.strip()] == [
        "# Title",
        "<!-- not run: needs a cluster -->",
        "1. A list:",
        "   <!-- checked, not run: a -->",
        "So:",
        "End.",
        "<!-- not run: b -->",
    ]


def test_what_goes_on_with_a_list_is_no_block() -> None:
    assert blocks_of("- one\n\n    two\n", "page.md") == []


def test_a_fence_that_is_not_closed_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"page\.md:2"):
        blocks_of("\n```sh\nls\n", "page.md")


# --- what is complained of


@pytest.mark.parametrize(
    ("given", "complains"),
    [
        (block("vllm-specdec-exporter check http://127.0.0.1:8000\n"), ""),
        (block("kubectl get pods\n"), "no marker"),
        (block("kubectl get pods\n", reason="needs a cluster", checked=True), ""),
        (block("kubectl get pods\n", reason="needs a cluster"), "must say that it is checked"),
        (block("kubectl get pods\n", reason="needs time", checked=True), "does not say cluster"),
        (
            block("docker build .\nkubectl get pods\n", reason="needs a cluster", checked=True),
            "Docker engine",
        ),
        (block("vllm serve m\n", reason="needs a vLLM"), ""),
        (block("vllm serve m\n", reason="needs a vLLM", checked=True), "must not say that it is checked"),
        (block("vllm-specdec-exporter check\n", reason="needs a cluster"), "marked as not run"),
        (block("echo 'open\n"), "it does not end"),
        (block("a: 1\n", "yaml"), "no tool is known"),
        (block("a: [\n", "yaml"), "nothing runs or checks it"),
        (block("scrape_configs: []\n", "yaml"), ""),
        (block("scrape_configs: []\n", "yaml", reason="needs a Prometheus"), "marked as not run"),
        (block("a --> b\n", ""), "no marker"),
        (block("a --> b\n", "", reason="a drawing"), ""),
        (block("a --> b\n", "mermaid", reason="it is long"), "does not say"),
        (block("make test\n", "bash", reason="a drawing"), "a command in a block of the language bash"),
        (block("up\n", "console"), "begins with"),
    ],
    ids=lambda value: value.text.split("\n")[0] if isinstance(value, Block) else "",
)
def test_complaints(given: Block, complains: str) -> None:
    """A block without a runner, a missing marker, one that is not true, and one that is not needed."""
    found = complaint(given)
    assert (complains in found) if complains else (found == "")


if __name__ == "__main__":
    print(report())
