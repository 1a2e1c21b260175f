"""What the documents say of engines, from their tables: parts of pages that are else
written by hand.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from command_reference import table

from vllm_specdec_exporter.engines import ENGINES, Engine
from vllm_specdec_exporter.engines.tables import dialects_of, listed

ROOT = Path(__file__).parents[1]

#: What a row of "What each engine reports" is about, by the fields of `Reports`.
_REPORTS = {
    "drafts": "drafts, drafted and accepted tokens",
    "moves": "counters move",
    "length": "acceptance length",
    "ratio": "acceptance ratio",
    "positions": "acceptance by position, advice on K",
    "draft_lengths": "draft lengths by position",
    "k": "K",
    "method": "method",
    "off": "speculation is off",
    "latencies": "latencies for a baseline",
}


#: Of whatever engine, by a gateway.
_USAGE = (
    "others behind a gateway that fills OpenAI's usage",
    "always",
    "`usage.completion_tokens_details`",
    (
        "the acceptance ratio. At OpenAI these fields count *predicted outputs*: do "
        "not mix such servers with yours"
    ),
)


def dialects() -> str:
    """Return the table of every dialect, by engine."""
    rows = [
        (f"`{dialect.name}`", dialect.server, dialect.note)
        for dialect in chain.from_iterable(map(dialects_of, ENGINES))
    ]
    return table(("dialect", "server", "what to know"), rows)


def options() -> str:
    """Return the table of what makes each engine speculate."""
    return table(("engine", "option", "K"), map(_option, ENGINES))


def _option(engine: Engine) -> tuple[str, str, str]:
    if engine.takes_config:
        k = "`num_speculative_tokens` in its JSON"
    else:
        k = f"`{engine.k_option.format(k='K', verified='K+1')}`"
    return engine.name, f"`{engine.speculation_option}`", k


def labels() -> str:
    """Return the table of labels that name parts of one engine."""
    return table(("server", "labels", "source"), _labels())


def _labels() -> Iterator[tuple[str, str, str]]:
    yield "every one", "`pid`", "prometheus_client's multiprocess mode"
    for engine in ENGINES:
        for row in engine.labels:
            names = ", ".join(f"`{name}`" for name in row.names)
            yield engine.name, f"{names}: {row.note}", row.source


def reports() -> str:
    """Return the table of what each engine reports.

    Engines that report the same share a column.
    """
    columns = {engine.reports: [] for engine in ENGINES}
    for engine in ENGINES:
        columns[engine.reports].append(engine.name)
    rows = []
    for field, about in _REPORTS.items():
        rows.append((about, *(getattr(shown, field) for shown in columns)))
    return table(("", *(", ".join(names) for names in columns.values())), rows)


def requests() -> str:
    """Return the table of records of requests, by engine."""
    rows = []
    for engine in ENGINES:
        rows += [
            (engine.name, row.enabled, row.place, row.content)
            for row in engine.requests
        ]
    # Last, for it is what is left where no engine's own record is passed on.
    rows.append(_USAGE)
    head = ("engine", "enable it with", "where it is", "what it has")
    return table(head, rows)


def others() -> str:
    """Return the engines beside vLLM, as a list in a sentence."""
    return listed([engine.name for engine in ENGINES[1:]])


#: What is written between `<!-- NAME: written by `make generate` -->` and
#: `<!-- end of NAME -->`, by page.
PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "docs/reference/dialects.md": {
        "dialects": dialects,
        "options": options,
        "labels": labels,
        "reports": reports,
    },
    "docs/requests.md": {"records": requests},
    "README.md": {"engines": others},
}


def written(page: str, text: str) -> str:
    """Return the text of a page with its generated parts; ValueError without marks."""
    for name, part in PARTS[page].items():
        begin = f"<!-- {name}: written by `make generate` -->"
        end = f"<!-- end of {name} -->"
        head, _, remainder = text.partition(begin)
        current, mark, tail = remainder.partition(end)
        if not mark:
            raise ValueError(f"{page} has no {begin} ... {end}")
        new = part()
        # A table stands on lines of its own, a list within its sentence.
        if current.startswith("\n"):
            new = f"\n{new}\n"
        text = f"{head}{begin}{new}{end}{tail}"
    return text
