"""vLLM's ``--speculative-config``, and its K schedule: the best K by batch size.

vLLM's `num_speculative_tokens_per_batch_size` has rows of first batch size, last batch
size and K. Rows start at 1 and do not overlap. Each K also applies to the gap behind
its row, and the last one beyond the last row; none is larger than
`num_speculative_tokens` (vLLM 0.32.0, `v1/spec_decode/dynamic/utils.py`, and measured
there). A K of 0 drafts nothing, but only without a draft model does such a step cost
what it does with speculation switched off. vLLM ignores the schedule with data
parallelism, because ranks could choose different K.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert

from ..config.spelling import nearest
from ..config.tables import read_table
from .cost import CostProfile

MAX_BATCH = 1024  # end of the last row; larger batches do not occur in practice


#: Methods that draft by looking text up. Only these have plain steps where a schedule
#: has K=0: for a drafter that is a model, vLLM still runs the first pass, which keeps
#: its KV cache in step.
WITHOUT_MODEL = frozenset({"ngram", "ngram_gpu", "suffix"})


def drafts_without_model(method: str) -> bool:
    """Return whether a step with K=0 is a plain one; a method that is not known may
    have a model.
    """
    return method in WITHOUT_MODEL


#: Methods that have no drafter whose tokens could be sampled.
_NOT_SAMPLED = WITHOUT_MODEL | {
    "medusa",
    "mlp_speculator",
    "custom_class",
    "extract_hidden_states",
}


class ScheduleRow(Struct, frozen=True):
    """From `first` to `last` requests in the batch, draft `num_speculative_tokens`; 0
    is none.
    """

    first: int
    last: int
    num_speculative_tokens: int


def make_schedule(
    lengths: Sequence[float],
    profile: CostProfile,
    prefer: int = 0,
    minimum_gain: float = 0.0,
    method: str = "",
) -> tuple[ScheduleRow, ...]:
    """Return the rows for batches of 1 to `MAX_BATCH` requests.

    Acceptance is assumed not to depend on the batch. No K beyond the present one is
    scheduled: vLLM does not allow it.

    Args:
        lengths: at index i, the mean acceptance length of K = i + 1: for a K below the
            present one a lower bound, so it is scheduled only where it surely gains.
        profile: the cost of steps.
        prefer: a K to use wherever it pays and no other gains enough: the K advised for
            the present load.
        minimum_gain: relative gain in speedup from which another K is worth a separate
            row, from 0 up.
        method: as vLLM calls it: unless it drafts without a model, K=0 still costs a
            pass of the drafter.
    """

    def best(batch: int) -> int:
        speedups = [
            length / profile.step_cost(k, batch) for k, length in enumerate(lengths, 1)
        ]
        fastest = max(speedups, default=0.0)
        idle_speedup = 1.0
        if not drafts_without_model(method):
            idle_speedup = 1 / profile.idle_cost(batch)
        enough = max(idle_speedup, fastest / (1 + minimum_gain))
        if 0 < prefer <= len(speedups) and speedups[prefer - 1] >= enough:
            return prefer
        if fastest > idle_speedup:
            return speedups.index(fastest) + 1
        return 0

    rows: list[ScheduleRow] = []
    for first, last in _runs(1, MAX_BATCH, best):
        k = best(first)
        if rows and rows[-1].num_speculative_tokens == k:
            rows[-1] = ScheduleRow(rows[-1].first, last, k)
        else:
            rows.append(ScheduleRow(first, last, k))
    return tuple(rows)


def _runs(
    first: int, last: int, best: Callable[[int], int]
) -> Iterator[tuple[int, int]]:
    """Yield ranges of batch sizes with the same best K, found by halving.

    The best K is monotonic in the batch: the cost of a further token, relative to a
    plain step, is a ratio of two straight lines.
    """
    if first == last or best(first) == best(last):
        yield first, last
        return
    middle = (first + last) // 2
    yield from _runs(first, middle, best)
    yield from _runs(middle + 1, last, best)


_KNOWN = read_table(__file__, "speculative_config.toml")
_METHODS = frozenset(_KNOWN["methods"])
_KEYS = frozenset(_KNOWN["keys"])
_LIKENESS = 0.8  # of a misspelt word and the right one, at least
_DIGITS = re.compile(r"\d")


def _check_spelling(word: str, allowed: frozenset[str]) -> None:
    """Raise ValueError for a misspelling of an allowed word; a new word is none.

    Another number is no misspelling: a newer vLLM may have ``eagle4``.
    """
    if word in allowed:
        return
    near = nearest(word, allowed, _LIKENESS)
    if near and _DIGITS.findall(near) == _DIGITS.findall(word):
        raise ValueError(
            f"{json.dumps(word)} is not known to vLLM; did you mean {near}?"
        )


_K = "num_speculative_tokens"
_SCHEDULE = "num_speculative_tokens_per_batch_size"
_Int32 = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
_ROW = ("first batch size", "last batch size", "K")


class Speculation(Struct, frozen=True):
    """The server's ``--speculative-config``, as given by the operator."""

    configured: bool = False  # whether the server has one
    method: str = ""  # such as ``eagle3`` or ``ngram``
    draft_model: str = ""
    num_speculative_tokens: int | None = None  # K
    document: str = ""  # the JSON itself
    schedule: tuple[ScheduleRow, ...] = ()  # K by batch size, if the JSON has it

    @property
    def unknown(self) -> tuple[str, ...]:
        """Keys and method that are not known here; a newer vLLM may know them."""
        unknown = [key for key in self._options if key not in _KEYS]
        if self.method and self.method not in _METHODS:
            unknown.append(self.method)
        return tuple(unknown)

    @property
    def _options(self) -> dict[str, Any]:
        """The keys of the JSON, also those that are not read here."""
        if not self.document:
            return {}
        options: dict[str, Any] = json.loads(self.document)
        return options

    @property
    def tree(self) -> bool:
        """Whether ``speculative_token_tree`` has branches: paths other than ``(0,)``,
        ``(0, 0)`` ...
        """
        tree = self._options.get("speculative_token_tree")
        return bool(tree and re.search("[1-9]", str(tree)))

    @property
    def parallel(self) -> bool:
        """Whether ``parallel_drafting`` is set: the drafter proposes all positions in
        one pass (P-EAGLE).
        """
        return self._options.get("parallel_drafting") is True

    def proposes_likeliest(self, method: str) -> bool:
        """Return whether the drafter proposes its likeliest tokens, and could sample
        them instead; true of a method that is not known.

        A sampling target takes such a token with its probability, however well the
        drafter fits.
        """
        options = self._options
        return (
            method not in _NOT_SAMPLED
            and options.get("draft_sample_method", "greedy") == "greedy"
            and options.get("rejection_sample_method", "standard") == "standard"
            # vLLM refuses both together.
            and not options.get("use_heterogeneous_vocab")
        )

    def scheduled_k(self, requests: float | None) -> int | None:
        """Return the scheduled K for a batch of this many requests; ``None`` without a
        schedule.
        """
        if not self.schedule or requests is None:
            return None
        for row in self.schedule:
            if max(1.0, requests) <= row.last:
                return row.num_speculative_tokens
        return self.schedule[-1].num_speculative_tokens

    def scheduled_k_of(self, least: float, most: float) -> int | None:
        """Return the scheduled K of all batches of these numbers of requests; ``None``
        if it differs.
        """
        scheduled = {self.scheduled_k(least), self.scheduled_k(most)}
        for row in self.schedule:
            if row.first <= most and least <= row.last:
                scheduled.add(row.num_speculative_tokens)
        return scheduled.pop() if len(scheduled) == 1 else None

    def with_k(self, k: int, schedule: Iterable[ScheduleRow] = ()) -> str:
        """Return the JSON with another K and, for any schedule, the given one."""
        options = self._options
        options.pop(_SCHEDULE, None)
        options[_K] = k
        rows = [[row.first, row.last, row.num_speculative_tokens] for row in schedule]
        if rows:
            options[_SCHEDULE] = rows
        return json.dumps(options)


#: The key of a map for every model and server that it does not name.
ANY = "*"


class Speculations(Struct, frozen=True):
    """What ``--spec.config`` says: one configuration, or some by served model or by
    target.
    """

    common: Speculation = Speculation()  # of what is not named
    by_name: Mapping[str, Speculation] = {}


def _parse_object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"not JSON ({error}); allowed: the very JSON given to vLLM's "
            "--speculative-config"
        ) from error
    if not isinstance(document, dict):
        raise ValueError(
            'a JSON object is expected, such as {"method": "ngram", '
            '"num_speculative_tokens": 4}'
        )
    return document


def parse_speculations(text: str) -> Speculations:
    """Parse one ``--speculative-config``, or a map of them by served model or target;
    ValueError as `parse_speculation`, and for an object that is neither.
    """
    document = _parse_object(text)
    if not document or _KEYS & document.keys():
        return Speculations(_speculation(document))
    if not all(isinstance(value, dict | None) for value in document.values()):
        for key in document:
            _check_spelling(key, _KEYS)
        raise ValueError(
            "neither vLLM's configuration, with keys such as method and "
            "num_speculative_tokens, nor a map of these by served model or target"
        )
    by_name = {}
    for name, value in document.items():
        if not value:  # null: this one does not speculate
            by_name[name] = Speculation()
            continue
        try:
            by_name[name] = _speculation(value)
        except ValueError as error:
            raise ValueError(f"{json.dumps(name)}: {error}") from error
    return Speculations(by_name.pop(ANY, Speculation()), by_name)


def parse_speculation(text: str) -> Speculation:
    """Parse vLLM's ``--speculative-config``; ValueError where vLLM would raise it.

    Other keys are kept.
    """
    return _speculation(_parse_object(text))


def _speculation(document: dict[str, Any]) -> Speculation:
    k = document.get(_K)
    if k is not None and (
        isinstance(k, bool) or not isinstance(k, int) or not 1 <= k < 2**31
    ):
        raise ValueError("num_speculative_tokens is a whole number from 1 up")
    for name in ("method", "model"):
        if not isinstance(document.get(name) or "", str):
            raise ValueError(f"{name} is a string")
    method = document.get("method") or ""
    for key in document:
        _check_spelling(key, _KEYS)
    if method:
        _check_spelling(method, _METHODS)
    return Speculation(
        configured=True,
        method=method,
        draft_model=document.get("model") or "",
        num_speculative_tokens=k,
        document=json.dumps(document),
        schedule=parse_schedule(document.get(_SCHEDULE), k),
    )


def parse_schedule(
    rows: object, num_speculative_tokens: int | None = None
) -> tuple[ScheduleRow, ...]:
    """Return the rows of ``num_speculative_tokens_per_batch_size`` as vLLM applies
    them: by rising batch size, without gaps, no K above `num_speculative_tokens` where
    that is known; else ValueError.
    """
    if rows is None:
        return ()
    try:
        # Like vLLM, which takes "64" and 64.0 for 64.
        numbers = convert(rows, list[tuple[_Int32, _Int32, _Int32]], strict=False)
    except ValidationError:
        numbers = []
    if not numbers:
        raise ValueError(
            f"{_SCHEDULE} is a list of rows [{', '.join(_ROW)}], such as [[1, 64, "
            "3], [65, 512, 0]]"
        )
    configured = sorted((ScheduleRow(*row) for row in numbers), key=attrgetter("first"))
    last_size = 0
    for row in configured:
        if not last_size < row.first <= row.last or row.num_speculative_tokens < 0:
            raise ValueError(
                f"{_SCHEDULE}: rows go from a first to a last batch size, from 1 up, "
                "and do not overlap"
            )
        last_size = row.last
    if configured[0].first != 1:
        raise ValueError(
            f"{_SCHEDULE}: the first row starts at a batch size of 1, not at "
            f"{configured[0].first}"
        )
    schedule = []
    for row, following in zip_longest(configured, configured[1:]):
        # vLLM fills a gap with the row before it.
        last = following.first - 1 if following else row.last
        k = row.num_speculative_tokens
        if num_speculative_tokens is not None:
            k = min(num_speculative_tokens, k)
        schedule.append(ScheduleRow(row.first, last, k))
    return tuple(schedule)


def names_drafter(config: str) -> bool:
    """Return whether a JSON has a method or model, so that it can be given to vLLM as
    it is.
    """
    return '"method"' in config or '"model"' in config
