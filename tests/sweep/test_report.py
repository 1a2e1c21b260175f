"""What is made of a record: the table, the conclusions, the JSON."""

from pathlib import Path

from sweep.records import PUBLISHED, published, record, result
from vllm_specdec_exporter.commands.sweep import report
from vllm_specdec_exporter.commands.sweep.record import Status
from vllm_specdec_exporter.commands.sweep.report import conclusions

GOLDEN = Path(__file__).parent / "golden"


def check_golden(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


def test_the_published_sweep_as_a_table() -> None:
    check_golden("published.txt", report.render(published()) + "\n")


def test_trouble_of_every_kind_as_a_table() -> None:
    found = record(
        result(0.0, 0.66, unit="draft", reach=0.02),
        result(0.8, 0.4, status=Status.DISTURBED, reasons=("the counters say 9 drafts, the records 8",)),
        result(0.0, None, prompts="own", concurrency=8),
        result(0.8, None, prompts="own", concurrency=8, status=Status.FAILED, reasons=("16 of 16: no",)),
    )
    check_golden("trouble.txt", report.render(found) + "\n")


def test_an_empty_record_says_so() -> None:
    assert report.render(record()).endswith("no cell was measured")


#: Acceptance at the published temperatures, and what is concluded from it.
CONCLUSIONS: dict[tuple[float | None, ...], str] = {
    tuple(PUBLISHED.values()): "acceptance falls from 0.81 at 0.0 to 0.38 at 1.0",
    (0.3, 0.35, 0.5, 0.7): "acceptance rises from 0.30 at 0.0 to 0.70 at 1.0",
    (0.6, 0.62, 0.58, 0.61): ("acceptance does not differ beyond chance: it is 0.60 at 0.0 and 0.61 at 1.0"),
    # Cells without acceptance take no part.
    (1.0, None, None, None): "acceptance is 1.00 at 0.0",
    (None, None, None, None): "nothing was drafted, so there is no acceptance",
}


def test_the_conclusion_says_what_temperature_does() -> None:
    for ratios, words in CONCLUSIONS.items():
        found = record(*(result(t, r) for t, r in zip(PUBLISHED, ratios, strict=True)))
        assert conclusions(found) == (words,)


def test_each_set_and_load_has_a_conclusion_of_its_own() -> None:
    cells = [
        result(t, r - 0.1 * (p == "chat"), prompts=p, concurrency=c)
        for p in ("code", "chat")
        for c in (1, 8)
        for t, r in reversed(PUBLISHED.items())
    ]
    found = conclusions(record(*cells))
    assert sorted(found) == [
        "chat, concurrency 1: acceptance falls from 0.71 at 0.0 to 0.28 at 1.0",
        "chat, concurrency 8: acceptance falls from 0.71 at 0.0 to 0.28 at 1.0",
        "code, concurrency 1: acceptance falls from 0.81 at 0.0 to 0.38 at 1.0",
        "code, concurrency 8: acceptance falls from 0.81 at 0.0 to 0.38 at 1.0",
    ]


def test_the_json_has_the_conclusions_beside_the_record() -> None:
    found = report.document(published())
    assert [cell["acceptance_ratio"] for cell in found["cells"]] == list(PUBLISHED.values())
    assert found["conclusions"] == list(conclusions(published()))
