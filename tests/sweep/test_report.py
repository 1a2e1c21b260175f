"""What is made of a record: the table, the conclusions, the CSV file."""

import csv
import io
from pathlib import Path

import pytest

from sweep.records import PUBLISHED, published, record, result
from vllm_specdec_exporter.commands.sweep import report
from vllm_specdec_exporter.commands.sweep.grid import Zone, Zones
from vllm_specdec_exporter.commands.sweep.record import Status
from vllm_specdec_exporter.commands.sweep.report import conclusions

GOLDEN = Path(__file__).parent / "golden"
ZONES = Zones()


def check_golden(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


def test_the_published_sweep_as_a_table() -> None:
    check_golden("published.txt", report.render(published(), ZONES) + "\n")


def test_trouble_of_every_kind_as_a_table() -> None:
    found = record(
        result(0.0, 0.66, unit="draft", reach=0.02),
        result(0.8, 0.4, status=Status.DISTURBED, reasons=("the counters say 9 drafts, the records 8",)),
        result(0.0, None, prompts="own", concurrency=8),
        result(0.8, None, prompts="own", concurrency=8, status=Status.FAILED, reasons=("16 of 16: no",)),
    )
    check_golden("trouble.txt", report.render(found, ZONES) + "\n")


def test_an_empty_record_says_so() -> None:
    assert report.render(record(), ZONES).endswith("no cell was measured")


BENEFIT, BREAK_EVEN, DISABLE = "likely benefit", "near break-even", '"disable"'
#: Acceptance at the published temperatures, and what is concluded from it.
CONCLUSIONS: dict[tuple[float | None, ...], str] = {
    tuple(PUBLISHED.values()): (
        f"falls from .81 at 0.0 to .38 at 1.0; at 0.8 it leaves the zone of {BENEFIT}, "
        f"at 1.0 it enters the zone of {DISABLE}"
    ),
    (0.9, 0.88, 0.85, 0.8): f"falls from .90 at 0.0 to .80 at 1.0; all of it in the zone of {BENEFIT}",
    (0.3, 0.35, 0.5, 0.7): (
        f"rises from .30 at 0.0 to .70 at 1.0; at 0.8 it enters the zone of {BREAK_EVEN}, "
        f"at 1.0 it enters the zone of {BENEFIT}"
    ),
    (0.6, 0.62, 0.58, 0.61): (
        "stays between .58 and .62 from 0.0 to 1.0, with no difference beyond chance between the two; "
        f"all of it in the zone of {BREAK_EVEN}"
    ),
    (0.8, 0.7, 0.4, 0.3): (
        f"falls from .80 at 0.0 to .30 at 1.0; at 0.8 it leaves the zone of {BENEFIT} for that of {DISABLE}"
    ),
    # Cells without acceptance take no part.
    (1.0, None, None, None): f"is 1.00 at 0.0, in the zone of {BENEFIT}",
}


def test_the_conclusion_says_what_temperature_does() -> None:
    for ratios, words in CONCLUSIONS.items():
        found = record(*(result(t, r) for t, r in zip(PUBLISHED, ratios, strict=True)))
        assert conclusions(found, ZONES) == (f"acceptance {words}",)


def test_without_drafts_there_is_no_acceptance_to_conclude_from() -> None:
    found = record(result(0.0, None), result(1.0, None))
    assert conclusions(found, ZONES) == ("nothing was drafted, so there is no acceptance to speak of",)


def test_each_set_and_load_has_a_conclusion_of_its_own() -> None:
    cells = [
        result(t, r - 0.1 * (p == "chat"), prompts=p, concurrency=c)
        for p in ("code", "chat")
        for c in (1, 8)
        for t, r in PUBLISHED.items()
    ]
    found = conclusions(record(*cells), ZONES)
    assert [words.partition(": acceptance")[0] for words in found] == [
        "code, concurrency 1",
        "code, concurrency 8",
        "chat, concurrency 1",
        "chat, concurrency 8",
    ]


def test_the_published_bounds_belong_to_the_zone_in_the_middle() -> None:
    assert [ZONES.of(r) for r in (0.499, 0.5, 0.65, 0.651)] == [
        Zone.DISABLE,
        Zone.NEAR_BREAK_EVEN,
        Zone.NEAR_BREAK_EVEN,
        Zone.LIKELY_BENEFIT,
    ]


def test_bounds_in_the_wrong_order_are_refused() -> None:
    for bounds in ((0.7, 0.6), (-0.1, 0.5), (0.5, 1.1)):
        with pytest.raises(ValueError, match="allowed: 0 <= "):
            Zones(*bounds)


def test_the_csv_has_a_row_for_each_cell_and_empty_fields_for_what_does_not_exist() -> None:
    found = record(result(0.0, 0.81), result(1.0, None, status=Status.FAILED, reasons=("a, b", "c")))
    rows = list(csv.DictReader(io.StringIO(report.to_csv(found, ZONES))))
    assert len(rows) == 2
    assert float(rows[0]["acceptance_ratio"]) == 0.81
    assert float(rows[0]["acceptance_low"]) == pytest.approx(0.77)
    assert float(rows[0]["position_2_acceptance_ratio"]) == pytest.approx(0.71)
    assert rows[0]["zone"] == "likely benefit"
    assert (rows[1]["acceptance_ratio"], rows[1]["zone"], rows[1]["position_0_acceptance_ratio"]) == (
        "",
        "",
        "",
    )
    assert rows[1]["reasons"] == "a, b; c"


def test_no_field_of_the_csv_is_a_formula() -> None:
    found = record(result(0.0, None, prompts="=1+1", status=Status.FAILED, reasons=("@x",)))
    (row,) = csv.DictReader(io.StringIO(report.to_csv(found, ZONES)))
    assert (row["prompts"], row["reasons"]) == ("'=1+1", "'@x")


def test_the_json_has_zones_and_conclusions_beside_the_record() -> None:
    found = report.document(published(), ZONES)
    assert [cell["zone"] for cell in found["cells"]] == [
        "likely benefit",
        "likely benefit",
        "near break-even",
        "disable",
    ]
    assert found["conclusions"] == list(conclusions(published(), ZONES))
    assert found["zones"] == {"disable_below": 0.5, "benefit_above": 0.65}
