"""The text formats: sample lines, labels, and what breaks a text."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support.builders import lines, refusal
from vllm_specdec_exporter.exposition import text as exposition
from vllm_specdec_exporter.exposition.text import (
    MalformedExposition,
    SampleLine,
    Selection,
    parse_labels,
)

SELECTION = Selection({"x_total"})


def read(*samples: str) -> list[SampleLine]:
    return list(SELECTION.lines(lines(*samples)))


#: Labels, sorted and unescaped, of a sample line with the value 3.
LINES = {
    "x_total 3": (),
    "x_total{} 3": (),
    'x_total{a="1"} 3': (("a", "1"),),
    'x_total{b="2",a="1"} 3': (("a", "1"), ("b", "2")),
    'x_total{a="1",} 3': (("a", "1"),),
    'x_total { a = "1" , b = "2" } 3': (("a", "1"), ("b", "2")),
    "x_total\t3 ": (),
    "x_total 3\r": (),
    'x_total{a="# x_total 4"} 3': (("a", "# x_total 4"),),
    # What follows the value, a timestamp or an exemplar, changes nothing.
    'x_total{a="1"} 3 1795203444.175': (("a", "1"),),
    'x_total{a="1"} 3 # {trace_id="abc",span_id="x y"} 0.5 1795203444.1': (("a", "1"),),
    'x_total{a="1"} 3 1795203444 # {trace_id="} 7"} 0.5': (("a", "1"),),
}
#: Integers, decimals, with exponents or infinite, as any client library prints.
VALUES = {
    "3": 3.0,
    "6.42568e+06": 6425680.0,
    "5e-324": 5e-324,
    "+3": 3.0,
    "-3": -3.0,
    "+Inf": float("inf"),
    "-Inf": float("-inf"),
    "1e999": float("inf"),
}


class TestReading:
    @pytest.mark.parametrize("text", LINES)
    def test_a_line_gives_its_name_and_its_labels(self, text: str) -> None:
        assert read(text) == [SampleLine("x_total", LINES[text], 3.0)]

    @pytest.mark.parametrize("text", VALUES)
    def test_a_line_gives_its_value(self, text: str) -> None:
        assert read(f"x_total {text}") == [SampleLine("x_total", (), VALUES[text])]

    def test_nan_is_a_value_of_the_format(self) -> None:
        """Whether a series may have it is not decided here."""
        (line,) = read("x_total NaN")
        assert str(line.value) == "nan"

    def test_other_lines_are_passed_over(self) -> None:
        """Comments and broken ones included."""
        others = [
            "x_total_more 3",
            "x_tota 3",
            "ax_total 3",
            "# x_total 3",
            "# HELP x_total 3",
            "#x_total 3",
        ]
        assert read(*others, "", "y{ 3") == []
        assert list(SELECTION.lines(b"")) == []

    @given(
        wanted=st.sets(st.text("ab_:", min_size=1, max_size=5), min_size=1),
        names=st.lists(st.text("ab_:", min_size=1, max_size=5)),
    )
    def test_exactly_the_wanted_names_are_found(
        self, wanted: set[str], names: list[str]
    ) -> None:
        """Whatever names are wanted, all their lines are found, and no others."""
        text = "".join(f"{name} 1\n" for name in names)
        selected = [line.name for line in Selection(wanted).lines(text.encode())]
        assert selected == list(filter(wanted.__contains__, names))

    @given(
        lines=st.lists(
            st.sampled_from(["x_total 1", "", "#" * 70, "y 2", " x_total 2"])
        ),
        size=st.integers(1, 80),
    )
    def test_pieces_are_the_text(self, lines: list[str], size: int) -> None:
        """However small the pieces that are searched, the same samples are found."""
        text = "".join(f"{line}\n" for line in lines).encode()
        at_once = list(SELECTION.lines(text))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(exposition, "_PIECE", size)
            assert list(SELECTION.lines(text)) == at_once

    @pytest.mark.parametrize("text", [b"\n" * 2**24, b"# x" * 2**22 + b"\n"])
    def test_no_piece_is_large(self, text: bytes) -> None:
        """A search keeps the interpreter, and with it every other thread."""
        assert max(map(len, exposition.pieces(text))) <= 256 * 1024 + 1


@pytest.mark.parametrize("size", [500, 600])
def test_long_labels_are_not_remembered(size: int) -> None:
    """They are equal to others, and each poll reads them anew."""
    block = f'a="{"x" * size}"'.encode()
    first = parse_labels(block)
    assert first == (("a", "x" * size),)
    assert (parse_labels(block) is first) == (size == 500)


def test_an_unknown_escape_stays_as_written() -> None:
    """Prometheus itself keeps a backslash that begins no known escape."""
    assert parse_labels(rb'a="\d"') == (("a", r"\d"),)


MALFORMED = yaml.safe_load(Path(__file__).with_name("refused.yml").read_text("utf-8"))[
    "sample_lines"
]


class TestMalformed:
    @pytest.mark.parametrize("text", MALFORMED)
    def test_a_wanted_line_that_breaks_the_format_fails_the_whole_text(
        self, text: str
    ) -> None:
        error = refusal(MalformedExposition, read, text, "y 1")
        assert error == MALFORMED[text]

    @pytest.mark.parametrize(
        ("labels", "lines", "error"),
        [
            (65, 1, "more than 64 labels in a line: "),
            (64, 1563, "more than 100000 labels in the selected lines"),
        ],
        ids=["line", "text"],
    )
    def test_labels_are_limited(self, labels: int, lines: int, error: str) -> None:
        """Each takes thirty times the memory of its bytes."""
        named = ",".join(f'l{n}=""' for n in range(labels))
        rows = [f"x_total{{{named}}} 1"] * lines
        assert refusal(MalformedExposition, read, *rows).startswith(error)

    def test_text_is_limited(self) -> None:
        """Also of few lines, each of which is not too long."""
        row = f'x_total{{a="{"z" * 16000}"}} 1'
        error = refusal(MalformedExposition, read, *[row] * 328)
        assert "5242880 bytes" in error
        assert len(read(*[row] * 300)) == 300

    def test_a_long_line_is_quoted_in_part(self) -> None:
        error = refusal(MalformedExposition, read, f"x_total {'z' * 5000}")
        assert 0 < len(error) < 400

    @pytest.mark.parametrize(
        ("text", "last"),
        [
            ("x_total 3", "x_total 3"),
            ("x_total 3\nx_to", "x_to"),
            ("x_total 3\nx_total 12", "x_total 12"),
            ("# a comm", "# a comm"),
        ],
    )
    def test_a_text_without_a_final_newline_was_cut_off(
        self, text: str, last: str
    ) -> None:
        """Its last number may lack digits."""
        error = f"^the text ends within a line: '{last}'$"
        with pytest.raises(MalformedExposition, match=error):
            list(SELECTION.lines(text.encode()))

    def test_labels_that_are_not_utf_8(self) -> None:
        with pytest.raises(MalformedExposition, match=r"^labels are not UTF-8: 'a="):
            list(SELECTION.lines(b'x_total{a="\xff"} 3\n'))
