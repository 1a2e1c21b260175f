from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import escape, labels, lines
from vllm_specdec_exporter.exposition import Line, MalformedExposition, Selection, parse_labels

SELECTION = Selection({"x_total"})

label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True)
label_values = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
nasty_values = st.text(st.sampled_from(list('\\"\n{},= n#\r\t\u2028é')), max_size=12)


def read(*samples: str) -> list[Line]:
    return list(SELECTION.lines(lines(*samples)))


class TestReading:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("x_total 3", Line("x_total", (), 3.0)),
            ("x_total{} 3", Line("x_total", (), 3.0)),
            ('x_total{a="1"} 3', Line("x_total", (("a", "1"),), 3.0)),
            ('x_total{b="2",a="1"} 3', Line("x_total", (("a", "1"), ("b", "2")), 3.0)),
            ('x_total{a="1",} 3', Line("x_total", (("a", "1"),), 3.0)),
            ('x_total { a = "1" , b = "2" } 3', Line("x_total", (("a", "1"), ("b", "2")), 3.0)),
            ("x_total\t3", Line("x_total", (), 3.0)),
            ("x_total 3 ", Line("x_total", (), 3.0)),
            ("x_total 3\r", Line("x_total", (), 3.0)),
            ('x_total{a=""} 3', Line("x_total", (("a", ""),), 3.0)),
            ('x_total{a="}"} 3', Line("x_total", (("a", "}"),), 3.0)),
            ('x_total{a="} 9"} 3', Line("x_total", (("a", "} 9"),), 3.0)),
            ('x_total{a="b=\\"c\\",d"} 3', Line("x_total", (("a", 'b="c",d'),), 3.0)),
            ('x_total{a="\\\\"} 3', Line("x_total", (("a", "\\"),), 3.0)),
            ('x_total{a="\\\\n"} 3', Line("x_total", (("a", "\\n"),), 3.0)),
            ('x_total{a="\\n"} 3', Line("x_total", (("a", "\n"),), 3.0)),
            ('x_total{a="# x_total 4"} 3', Line("x_total", (("a", "# x_total 4"),), 3.0)),
        ],
    )
    def test_a_sample_line(self, text: str, expected: Line) -> None:
        """A line gives its name, its labels sorted and unescaped, and its value."""
        assert [expected] == read(text)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("3", 3.0),
            ("3.0", 3.0),
            ("6.42568e+06", 6425680.0),
            ("1.7952037703520246e+09", 1795203770.3520246),
            ("5e-324", 5e-324),
            ("+3", 3.0),
            ("-3", -3.0),
            ("+Inf", float("inf")),
            ("-Inf", float("-inf")),
            ("1e999", float("inf")),
        ],
    )
    def test_a_value(self, text: str, expected: float) -> None:
        """Values come as integers, decimals, with exponents or infinite, as any client library prints."""
        assert [Line("x_total", (), expected)] == read(f"x_total {text}")

    def test_nan(self) -> None:
        """NaN is a value of the format; whether a series may have it is not decided here."""
        (line,) = read("x_total NaN")

        assert str(line.value) == "nan"

    @pytest.mark.parametrize(
        "behind",
        [
            " 1795203444",
            " 1795203444.175",
            ' # {trace_id="abc",span_id="x y"} 0.5 1795203444.1',
            ' 1795203444 # {trace_id="} 7"} 0.5',
        ],
    )
    def test_timestamps_and_exemplars_are_passed_over(self, behind: str) -> None:
        """What follows the value, a timestamp or an exemplar, changes nothing."""
        assert [Line("x_total", (("a", "1"),), 3.0)] == read(f'x_total{{a="1"}} 3{behind}')

    def test_lines_keep_their_order(self) -> None:
        """Samples come out in the order in which they stand."""
        assert [line.value for line in read("x_total 1", "x_total 2", "x_total 3")] == [1.0, 2.0, 3.0]

    @pytest.mark.parametrize(
        "text",
        [
            "x_total_more 3",
            "x_tota 3",
            "ax_total 3",
            "# x_total 3",
            "# HELP x_total 3",
            "#x_total 3",
            "",
            "y{ 3",
        ],
    )
    def test_other_lines_are_not_looked_at(self, text: str) -> None:
        """Lines that were not asked for are passed over, comments and broken ones included."""
        assert read(text) == []

    def test_a_name_that_begins_another(self) -> None:
        """A wanted name that is the beginning of another wanted name is told from it."""
        selection = Selection({"x", "x_total", "x_total_2"})

        found = [line.name for line in selection.lines(lines("x_total_2 1", "x 2", "x_total 3"))]

        assert found == ["x_total_2", "x", "x_total"]

    def test_an_empty_text_has_no_lines(self) -> None:
        """A body of no bytes holds no samples and is whole."""
        assert list(SELECTION.lines(b"")) == []

    @given(
        wanted=st.sets(st.text("ab_:", min_size=1, max_size=5), min_size=1),
        names=st.lists(st.text("ab_:", min_size=1, max_size=5)),
    )
    def test_exactly_the_wanted_names_are_found(self, wanted: set[str], names: list[str]) -> None:
        """Whatever names are wanted, all their lines are found, and no others."""
        found = [line.name for line in Selection(wanted).lines(lines(*(f"{name} 1" for name in names)))]

        assert [name for name in names if name in wanted] == found


class TestLabels:
    @given(st.dictionaries(label_names, label_values | nasty_values, max_size=5))
    def test_values_round_trip(self, pairs: dict[str, str]) -> None:
        """Any label value, also with quotes, braces, backslashes and newlines, is read as it was meant."""
        (line,) = SELECTION.lines(lines(f"x_total{labels(pairs)} 3"))

        assert Line("x_total", tuple(sorted(pairs.items())), 3.0) == line

    @given(label_values | nasty_values)
    def test_escaping_does_not_hide_the_next_line(self, value: str) -> None:
        """No label value swallows the line behind it."""
        text = lines(f'x_total{{a="{escape(value)}"}} 3', "x_total 4")

        assert [line.value for line in SELECTION.lines(text)] == [3.0, 4.0]

    def test_an_unknown_escape_stays_as_written(self) -> None:
        """Prometheus itself keeps a backslash that begins no known escape."""
        assert parse_labels(rb'a="\d"') == (("a", r"\d"),)


class TestMalformed:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x_total ", "not a sample line: 'x_total '"),
            ('x_total{a="1"}', "not a sample line: 'x_total{a=\"1\"}'"),
            ('x_total{a="1" 3', "not a sample line: 'x_total{a=\"1\" 3'"),
            ('x_total{a="1} 3', "not a sample line: 'x_total{a=\"1} 3'"),
            ("x_total{a=1} 3", "not a list of labels: 'a=1'"),
            ("x_total{a} 3", "not a list of labels: 'a'"),
            ("x_total{,} 3", "not a list of labels: ','"),
            ('x_total{1a="1"} 3', "not a list of labels: '1a=\"1\"'"),
            ('x_total{a="1"b="2"} 3', 'not a list of labels: \'a="1"b="2"\''),
            ('x_total{a="1",a="2"} 3', 'not a list of labels: \'a="1",a="2"\''),
            ('x_total{a="1",a="1"} 3', 'not a list of labels: \'a="1",a="1"\''),
            ("x_total 1_000", "not a number: '1_000' in 'x_total 1_000'"),
            ("x_total three", "not a number: 'three' in 'x_total three'"),
            ("x_total 1,5", "not a number: '1,5' in 'x_total 1,5'"),
            ("x_total 0x10", "not a number: '0x10' in 'x_total 0x10'"),
        ],
    )
    def test_a_wanted_line_that_cannot_be_read(self, text: str, message: str) -> None:
        """A wanted line that breaks the format fails the whole text, with the line in the message."""
        with pytest.raises(MalformedExposition, match=f"^{re.escape(message)}$"):
            read(text)

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_a_wanted_name_alone_on_its_line(self, end: str) -> None:
        """A wanted line without a value is not skipped: a lost counter would look like a restart."""
        with pytest.raises(MalformedExposition):
            list(SELECTION.lines(lines("x_total", "y 1", end=end)))

    @pytest.mark.parametrize(
        "text", [b"x_total 3", b"x_total 3\nx_to", b"x_total 3\nx_total 12", b"# a comm"]
    )
    def test_a_text_that_ends_within_a_line(self, text: bytes) -> None:
        """A text without a final newline was cut off: its last number may lack digits."""
        last = text.rpartition(b"\n")[2].decode()
        with pytest.raises(MalformedExposition, match=f"^the text ends within a line: '{last}'$"):
            list(SELECTION.lines(text))

    def test_labels_that_are_not_utf_8(self) -> None:
        """Labels are UTF-8; a message says where they are not."""
        with pytest.raises(MalformedExposition, match=r"^labels are not UTF-8: 'a="):
            list(SELECTION.lines(b'x_total{a="\xff"} 3\n'))

    def test_a_long_line_is_quoted_in_part(self) -> None:
        """The message does not repeat a line of any length."""
        with pytest.raises(MalformedExposition) as raised:
            read(f"x_total {'z' * 5000}")

        assert len(str(raised.value)) < 400

    @given(st.binary(max_size=80), st.binary(max_size=40))
    def test_arbitrary_bytes(self, before: bytes, behind: bytes) -> None:
        """Any bytes at all are either read or refused as malformed; nothing else ever happens."""
        text = before + b"\nx_total" + behind + b"\n"
        try:
            found = list(SELECTION.lines(text))
        except MalformedExposition:
            found = []

        assert all(line.name == "x_total" and isinstance(line.value, float) for line in found)
