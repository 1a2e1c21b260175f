"""The records of speculation of every engine, in one form.

An engine is recognised by the names of the counts in its record, so a push and a file may have any of them
where vLLM's record is expected. Sections of a response that have other contents, such as timings, are no
record without these names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..engines.server_info import UNREADABLE
from .observation import DraftRecord, RecordError, check, count_of, histogram_of, parse_record, whole_drafts


def read_record(document: object) -> DraftRecord:
    """Return the record in `document`, of any engine; RecordError if its counts contradict each other."""
    if isinstance(document, dict):
        for name, adapter in _ADAPTERS.items():
            if document.get(name) is not None:
                return adapter(document)
    return parse_record(document)


class _Counts(msgspec.Struct):
    """What is read of the sections of a response that have a record, of any of these engines."""

    completion_tokens: int | None = None
    spec_tokens_details: msgspec.Raw = msgspec.Raw(b"null")
    spec_verify_ct: int | None = None
    spec_num_proposed_drafts: int | None = None
    spec_num_correct_drafts: int | None = None
    spec_correct_drafts_histogram: list[int] | None = None
    spec_accept_histogram: list[int] | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None
    draft_rounds: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


_COUNTS = msgspec.json.Decoder(_Counts)


def find_record(*sections: msgspec.Raw) -> tuple[DraftRecord | None, bool]:
    """Return the first record in sections of a response, and whether one contradicts itself.

    A section that is no object has none: SGLang writes a list of records for several choices, for which vLLM
    writes no record either. Nothing drafted is a record of SGLang only: others write zeros without
    speculation, too.
    """
    for raw in sections:
        if bytes(memoryview(raw)[:1]) != b"{":
            continue
        try:
            counts = _COUNTS.decode(raw)
            inner = counts.spec_tokens_details
            if bytes(memoryview(inner)[:1]) == b"{":
                counts = _COUNTS.decode(inner)
            document = msgspec.structs.asdict(counts)
            known = any(document[name] is not None for name in _ADAPTERS)
            record = read_record(document) if known else None
        except (RecordError, *UNREADABLE):
            return None, True
        if record is not None and (record.draft_tokens or counts.spec_num_proposed_drafts is not None):
            return record, False
    return None, False


def tokens_in(raw: msgspec.Raw) -> int | None:
    """Return the generated tokens in a section of a response, ``None`` if it has none."""
    try:
        return _COUNTS.decode(raw).completion_tokens
    except UNREADABLE:
        return None


def _of_sglang(document: dict[str, Any]) -> DraftRecord:
    """Read `meta_info` or `sglext.spec_tokens_details`: verifications, and how many tokens each accepted.

    SGLang computes what was proposed from the configured number of tokens, whatever was drafted. All drafts
    of a request have the same length, unless K changes meanwhile: then there are no steps.
    """
    drafts = count_of(document, "spec_verify_ct")
    drafted = count_of(document, "spec_num_proposed_drafts")
    accepted = count_of(document, "spec_num_correct_drafts")
    newer = document.get("spec_correct_drafts_histogram") is not None
    name = "spec_correct_drafts_histogram" if newer else "spec_accept_histogram"
    histogram = histogram_of(document, name, drafts, accepted)
    _check_totals(accepted, drafted)
    check(drafts or not drafted, "the record has drafted tokens, but no verification")
    steps = whole_drafts(drafted // drafts if drafts else 0, drafts, drafted, histogram)
    return DraftRecord(drafts, drafted, accepted, histogram, steps, configured_k=True)


def _of_timings(document: dict[str, Any]) -> DraftRecord:
    """Read `timings` of llama.cpp, which do not count verifications, or of mlx-vlm, which do."""
    drafted, accepted = count_of(document, "draft_n"), count_of(document, "draft_n_accepted")
    _check_totals(accepted, drafted)
    drafts = count_of(document, "draft_rounds") if document.get("draft_rounds") is not None else 0
    return DraftRecord(drafts, drafted, accepted)


def _of_usage(document: dict[str, Any]) -> DraftRecord:
    """Read the details of OpenAI's usage, which do not count verifications."""
    accepted = count_of(document, "accepted_prediction_tokens")
    return DraftRecord(0, accepted + count_of(document, "rejected_prediction_tokens"), accepted)


def _check_totals(accepted: int, drafted: int) -> None:
    check(accepted <= drafted, "the record has more tokens accepted than drafted")


#: The adapter of each engine, by the name of a count that only its record has.
_ADAPTERS: dict[str, Callable[[dict[str, Any]], DraftRecord]] = {
    "spec_num_proposed_drafts": _of_sglang,
    "draft_n": _of_timings,
    "accepted_prediction_tokens": _of_usage,
}
