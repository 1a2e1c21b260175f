"""Records of speculation in the responses of engines.

An engine is recognised by the names of the counts in its record, so a push and a file
may have any of them where vLLM's record is expected. Sections of a response that have
other contents, such as timings, are no record without these names. vLLM's is that of
``--per-request-spec-decode-metrics``.

With ``summary`` the record has totals and the distribution of accepted tokens; with
``detailed`` also the drafted and accepted tokens of each step, and so the acceptance of
a position *where it was drafted*. If all drafts had K tokens, these follow from the
distribution.
"""

import re
from collections import Counter
from itertools import count
from operator import gt, mul
from typing import Annotated, Any, cast

import msgspec
from msgspec import Struct, defstruct

from ..engines import ENGINES, UNREADABLE
from ..engines.engine import Record

#: Limit of the steps that are read of a record, above what requests have: reading
#: blocks traffic, ~15 ms.
_MAX_STEPS = 65_536
#: A count that a float can hold.
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_Counts = tuple[_Count, ...]
#: At index j, the steps in which j tokens were accepted.
_Histogram = Annotated[_Counts, msgspec.Meta(max_length=_MAX_STEPS)]
#: Limit of drafted tokens in one step; vLLM's largest K is far below.
MAX_DRAFTED = 128


class RecordError(ValueError):
    """A record contradicts itself or has invalid counts."""


class DraftRecord(Struct, frozen=True):
    """The record of the speculation of one request."""

    #: Steps with drafted tokens, including those of which a grammar rejected every
    #: token; 0 beside drafted tokens if the engine does not count steps.
    drafts: int
    draft_tokens: int  # drafted tokens
    accepted_tokens: int  # drafted tokens that were accepted
    #: At index j, the steps in which j tokens were accepted.
    histogram: tuple[int, ...] = ()
    #: Steps by (drafted, accepted) tokens; empty without details or with too many
    #: steps.
    steps: dict[tuple[int, int], int] = {}
    #: Whether `draft_tokens` is computed from the configured K, which trees and an
    #: adaptive K do not follow.
    configured_k: bool = False

    @property
    def acceptance_ratio(self) -> float | None:
        """Accepted over drafted tokens, 0 to 1; ``None`` if nothing was drafted."""
        if self.draft_tokens:
            return self.accepted_tokens / self.draft_tokens
        return None

    def delivered_tokens(self, completion_tokens: int | None) -> int:
        """Return the accepted tokens that can have reached an answer of so many tokens,
        all of them if its length is not known.

        Its first token comes from prefill, and each draft gives a bonus token. What the
        end of the answer cuts off was accepted as well.
        """
        if not completion_tokens:
            return self.accepted_tokens
        decoded = completion_tokens - 1
        return max(0, min(self.accepted_tokens, decoded - self.drafts))

    @property
    def accepted_per_draft(self) -> float | None:
        """Accepted tokens per draft, 0 to K; ``None`` if nothing was drafted."""
        if self.drafts:
            return self.accepted_tokens / self.drafts
        return None


def parse_record(document: object) -> DraftRecord:
    """Return the record in `document`, the value of vLLM's
    ``metrics.speculative_decoding``.

    Its means are not read: they follow from the counts. RecordError if these contradict
    each other.
    """
    try:
        return msgspec.convert(document, VllmRecord).record()
    except msgspec.ValidationError as error:
        named = _FIELD.search(str(error))
        if named is None:
            raise RecordError("the record is not an object") from error
        expected = "a count" if named[1] in _TOTALS else "a list of counts"
        raise RecordError(f"the record's {named[1]} is not {expected}") from error


#: The name of a field in an error of msgspec: in its path, or because it is missing.
_FIELD = re.compile(r"(?:`\$\.|field `)(\w+)")
_TOTALS = {
    "num_spec_steps",
    "num_draft_tokens",
    "num_accepted_draft_tokens",
    "num_spec_tokens",
}


class VllmRecord(msgspec.Struct):
    """What is read of the record of ``--per-request-spec-decode-metrics``."""

    num_spec_steps: _Count
    num_draft_tokens: _Count
    num_accepted_draft_tokens: _Count
    num_spec_tokens: _Count | None = None
    acceptance_histogram: _Histogram | None = None
    per_step_drafted: _Counts | None = None
    per_step_accepted: _Counts | None = None

    def record(self) -> DraftRecord:
        """Return the record; RecordError if it contradicts itself."""
        drafts = self.num_spec_steps
        draft_tokens = self.num_draft_tokens
        accepted = self.num_accepted_draft_tokens
        _check_totals(accepted, draft_tokens)
        _require(
            drafts or not draft_tokens,
            "the record has drafted tokens, but no step that drafted them",
        )
        histogram = self.acceptance_histogram or ()
        _check_histogram("acceptance_histogram", histogram, drafts, accepted)
        steps = self._steps()
        if not steps:
            k = self.num_spec_tokens
            if k is None:
                k = len(histogram) - 1
            steps = whole_drafts(k, drafts, draft_tokens, histogram)
        return DraftRecord(
            drafts=drafts,
            draft_tokens=draft_tokens,
            accepted_tokens=accepted,
            histogram=histogram,
            steps=steps,
        )

    def _steps(self) -> dict[tuple[int, int], int]:
        drafted = self.per_step_drafted or ()
        accepted = self.per_step_accepted or ()
        if min(len(drafted), len(accepted)) > _MAX_STEPS:
            return {}
        for name, values in (
            ("per_step_drafted", drafted),
            ("per_step_accepted", accepted),
        ):
            _require(
                len(values) <= _MAX_STEPS,
                f"the record's {name} is not a list of counts",
            )
        if not drafted and not accepted:
            return {}
        _require(
            len(drafted) == len(accepted),
            "the record's per_step_drafted and per_step_accepted differ in length",
        )
        _require(
            len(drafted) == self.num_spec_steps
            and sum(drafted) == self.num_draft_tokens
            and sum(accepted) == self.num_accepted_draft_tokens,
            "the record's steps do not add up to its totals",
        )
        # Without a Python loop: a long response has thousands of steps, and this blocks
        # traffic.
        _require(
            not any(map(gt, accepted, drafted)),
            "a step of the record has more tokens accepted than drafted",
        )
        _require(
            max(drafted) <= MAX_DRAFTED,
            f"a step of the record has more than {MAX_DRAFTED} drafted tokens",
        )
        return dict(Counter(zip(drafted, accepted, strict=True)))


def whole_drafts(
    k: int, drafts: int, draft_tokens: int, histogram: tuple[int, ...]
) -> dict[tuple[int, int], int]:
    """Return the steps of a request whose drafts all had `k` tokens, the most; empty if
    some were shorter.
    """
    if (
        not 0 < k <= MAX_DRAFTED
        or draft_tokens != k * drafts
        or not histogram
        or any(histogram[k + 1 :])
    ):
        return {}
    return {(k, length): number for length, number in enumerate(histogram) if number}


def _require(holds: object, message: str) -> None:
    """Raise RecordError with the message unless it holds."""
    if not holds:
        raise RecordError(message)


def _check_totals(accepted: int, drafted: int) -> None:
    _require(accepted <= drafted, "the record has more tokens accepted than drafted")


def _check_histogram(
    name: str, histogram: tuple[int, ...], drafts: int, accepted: int
) -> None:
    """Raise RecordError if a distribution disagrees with its totals; none agrees."""
    if not histogram:
        return
    sums = f"the record's {name} does not add up to"
    _require(sum(histogram) == drafts, f"{sums} num_spec_steps")
    accepted_by_steps = sum(map(mul, count(), histogram))
    _require(accepted_by_steps == accepted, f"{sums} num_accepted_draft_tokens")


#: Records that are not vLLM's.
_RECORDS = tuple(engine.record for engine in ENGINES if engine.record is not None)


def read_record(document: object) -> DraftRecord:
    """Return the record in `document`, of any engine; RecordError if its counts
    contradict each other.
    """
    if isinstance(document, dict):
        for record in _RECORDS:
            if document.get(record.draft_tokens) is not None:
                return _of_engine(record, document)
        if document.get(_OF_USAGE) is not None:
            return _of_usage(document)
    return parse_record(document)


#: A count that only OpenAI's usage has.
_OF_USAGE = "accepted_prediction_tokens"


class _Section(msgspec.Struct):
    """What is read of the sections of a response that may have a record."""

    completion_tokens: int | None = None
    spec_tokens_details: msgspec.Raw = msgspec.Raw(b"null")
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


def _with_counts() -> type[_Section]:
    """Return a section with the counts of every engine's record."""
    names: dict[str, Any] = {}
    for record in _RECORDS:
        counts = (record.drafts, record.draft_tokens, record.accepted_tokens)
        names |= dict.fromkeys(counts, int | None)
        names |= dict.fromkeys(record.histograms, list[int] | None)
    fields = [(name, kind, None) for name, kind in names.items()]
    return cast("type[_Section]", defstruct("_Counts", fields, bases=(_Section,)))


#: The count that shows whose record a section is.
_MARKS = (*(record.draft_tokens for record in _RECORDS), _OF_USAGE)
#: Of these, those of records that are there without drafts, too. Others write zeros
#: without speculation.
_MARKS_OF_NONE = {
    record.draft_tokens for record in _RECORDS if record.from_configured_k
}
_COUNTS = msgspec.json.Decoder(_with_counts())


def find_record(*sections: msgspec.Raw) -> tuple[DraftRecord | None, bool]:
    """Return the first record in sections of a response, and whether one contradicts
    itself.

    A section that is no object has none: SGLang writes a list of records for several
    choices, for which vLLM writes no record either.
    """
    for raw in sections:
        if not _is_object(raw):
            continue
        try:
            counts = _COUNTS.decode(raw)
            if _is_object(counts.spec_tokens_details):
                counts = _COUNTS.decode(counts.spec_tokens_details)
            document = msgspec.structs.asdict(counts)
            present = {name for name in _MARKS if document[name] is not None}
            record = read_record(document) if present else None
        except (RecordError, *UNREADABLE):
            return None, True
        if record is not None and (record.draft_tokens or present & _MARKS_OF_NONE):
            return record, False
    return None, False


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"


def tokens_in(raw: msgspec.Raw) -> int | None:
    """Return the generated tokens in a section, ``None`` if it has none."""
    try:
        return _COUNTS.decode(raw).completion_tokens
    except UNREADABLE:
        return None


def _of_engine(record: Record, document: dict[str, Any]) -> DraftRecord:
    """Read a record by the names of its counts.

    Without a number of drafts, or if K changes within the request, it has no steps.
    """
    drafts = 0
    if record.counts_drafts or document.get(record.drafts) is not None:
        drafts = _count_of(document, record.drafts)
    drafted = _count_of(document, record.draft_tokens)
    accepted = _count_of(document, record.accepted_tokens)
    histogram: tuple[int, ...] = ()
    for name in record.histograms:
        if document.get(name) is not None:
            histogram = _histogram_of(document, name)
            _check_histogram(name, histogram, drafts, accepted)
            break
    _check_totals(accepted, drafted)
    if record.counts_drafts:
        _require(
            drafts or not drafted, "the record has drafted tokens, but no verification"
        )
    k = drafted // max(1, drafts)
    return DraftRecord(
        drafts,
        drafted,
        accepted,
        histogram,
        steps=whole_drafts(k, drafts, drafted, histogram),
        configured_k=record.from_configured_k,
    )


def _of_usage(document: dict[str, Any]) -> DraftRecord:
    """Read the details of OpenAI's usage, which do not count verifications."""
    accepted = _count_of(document, "accepted_prediction_tokens")
    rejected = _count_of(document, "rejected_prediction_tokens")
    return DraftRecord(0, accepted + rejected, accepted)


def _count_of(document: dict[str, Any], name: str) -> int:
    try:
        return msgspec.convert(document.get(name), _Count)
    except msgspec.ValidationError as error:
        raise RecordError(f"the record's {name} is not a count") from error


def _histogram_of(document: dict[str, Any], name: str) -> tuple[int, ...]:
    try:
        return msgspec.convert(document.get(name), _Histogram)
    except msgspec.ValidationError as error:
        raise RecordError(f"the record's {name} is not a list of counts") from error
