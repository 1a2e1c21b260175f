"""Thirteen questions of operators, and how the dashboards answer them: docs/dashboards.md has them, too.

Each is asked of a world where the answer is known. `answer` gets what the panel shows, and says what a person
would read off it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashboards.live import legend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True)
class View:
    """What somebody sees of a panel.

    Attributes:
        panel: its JSON.
        data: what Prometheus answered, by refId.
        annotations: what is drawn into it, by name.
        end: Unix time at the right edge.
    """

    panel: Mapping[str, Any]
    data: Mapping[str, Any]
    annotations: Mapping[str, Any]
    end: float

    def word(self, value: float) -> str:
        """Return the word that a value is mapped to, in the panel or in one of its columns."""
        defaults = self.panel["fieldConfig"]["defaults"].get("mappings", [])
        overridden = [
            item["value"]
            for override in self.panel["fieldConfig"]["overrides"]
            for item in override["properties"]
            if item["id"] == "mappings"
        ]
        for mappings in (defaults, *overridden):
            for mapping in mappings:
                if f"{value:g}" in mapping["options"]:
                    return str(mapping["options"][f"{value:g}"]["text"])
        return f"{value:g}"

    def now(self) -> dict[str, float]:
        """Return the values of the bars or tiles, by what they are called."""
        found = {}
        for target in self.panel["targets"]:
            for series in self.data[target["refId"]]["result"]:
                found[legend(target["legendFormat"], series["metric"])] = float(series["value"][1])
        return found

    def lines(self) -> dict[str, list[tuple[float, float]]]:
        """Return the lines, by what they are called."""
        found = {}
        for target in self.panel["targets"]:
            for series in self.data[target["refId"]]["result"]:
                name = legend(target["legendFormat"], series["metric"])
                found[name] = [(time, float(value)) for time, value in series["values"]]
        return found

    def rows(self, *labels: str) -> dict[tuple[str, ...], list[float | None]]:
        """Return the rows of a table by some labels; a column without a value is ``None``."""
        columns = [target["refId"] for target in self.panel["targets"]]
        found: dict[tuple[str, ...], list[float | None]] = {}
        for index, ref in enumerate(columns):
            for series in self.data[ref]["result"]:
                key = tuple(series["metric"].get(label, "") for label in labels)
                found.setdefault(key, [None] * len(columns))[index] = float(series["value"][1])
        return found


@dataclass(frozen=True)
class Asked:
    """A question.

    Attributes:
        question: in an operator's words.
        world: where it is asked.
        dashboard: the end of the uid.
        panel: the title of the panel that answers it.
        answer: from what the panel shows to the answer.
        expected: the answer in that world.
    """

    question: str
    world: str
    dashboard: str
    panel: str
    answer: Callable[[View], str]
    expected: str


# --- what a person reads off a panel


def verdict(view: View) -> str:
    """Read the first tile."""
    return view.word(view.now()["verdict"])


def since(view: View) -> str:
    """Read the verdict that stands now, and when its colour began."""
    (line,) = view.lines().values()
    last = line[-1][1]
    began = line[-1][0]
    for time, value in reversed(line):
        if value != last:
            break
        began = time
    return f"{view.word(last)} for about {round((view.end - began) / 900) * 15} minutes"


def losers(view: View) -> str:
    """Read the rows of a table whose verdict is the first in the order of attention."""
    rows = view.rows("cluster", "model_name")
    bad = [key for key, values in rows.items() if values[0] is not None and "HARMFUL" in view.word(values[0])]
    return ", ".join(sorted(f"{model} in {cluster}" for cluster, model in bad))


def advised(view: View) -> str:
    """Read the bar that repeats the one of the K advised."""
    (name,) = [name for name in view.now() if name.startswith("advised: ")]
    return name.removeprefix("advised: ")


def change_of_k(view: View) -> str:
    """Read the annotations of K, and what the line did at them."""
    (line,) = (values for name, values in view.lines().items() if not name.startswith("limit"))
    marks = sorted(
        (time, series["metric"]["value"])
        for series in view.annotations["K changes"]["result"]
        for time, _ in series["values"]
    )
    said = []
    for time, k in _first(marks):
        before = [value for at, value in line if time - 900 < at < time - 180]
        after = [value for at, value in line if time + 300 < at < time + 900]
        if before and after:
            moved = sum(after) / len(after) - sum(before) / len(before)
            said.append(f"K {k}: {'longer' if moved > 0 else 'shorter'}")
    return ", ".join(said)


def _first(marks: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the first mark of each run of the same K."""
    return [mark for before, mark in zip([(0.0, ""), *marks], marks, strict=False) if before[1] != mark[1]]


def load_or_drafts(view: View) -> str:
    """Compare the beginning of three lines with their end."""
    change = {}
    for name, line in view.lines().items():
        first, last = line[len(line) // 5][1], line[-3][1]
        change[name] = last / first
    drafts = abs(change["mean acceptance length"] - 1) > 0.1
    load = change["running requests"] > 1.5
    blamed = [name for name, guilty in (("drafts", drafts), ("load", load)) if guilty]
    return f"speedup {'falls' if change['speedup'] < 0.95 else 'stands'}: {', '.join(blamed)}"


def first_loss(view: View) -> str:
    """Read the first bar below break-even."""
    bars = view.now()
    edge = bars["harmful below"]
    return next((name for name, speed in bars.items() if name != "harmful below" and speed < edge), "none")


def most(view: View) -> str:
    """Read the words of a tile that shows a state and its share."""
    return ", ".join(view.now())


def band(view: View) -> str:
    """Compare the end of a line with the band around the usual."""
    lines = view.lines()
    here, low, high = (lines[name][-1][1] for name in ("now", "usual, at least", "usual, at most"))
    return "below" if here < low else "above" if here > high else "as usual"


def useless_positions(view: View) -> str:
    """Read the bars of positions below a tenth."""
    return ", ".join(name for name, value in view.now().items() if value < 0.1) or "none"


def watched(view: View) -> str:
    """Read what each row of the timeline ends with."""
    return ", ".join(sorted({view.word(line[-1][1]) for line in view.lines().values()}))


def losing_kinds(view: View) -> str:
    """Read the rows of which more than half of the requests lose."""
    rows = view.rows("request_type", "temperature")
    lose = {key: values[1] for key, values in rows.items() if values[1] is not None and values[1] > 0.5}
    return ", ".join(f"{kind} at {heat}" for kind, heat in sorted(lose, key=lambda key: -(lose[key] or 0)))


def measured(view: View) -> str:
    """Read whether the measured line is above break-even."""
    lines = view.lines()
    return "faster" if lines["measured, of all"][-1][1] > lines["limit: harmful below"][-1][1] else "slower"


QUESTIONS = (
    Asked("Does speculation pay right now?", "harmful", "payoff",
          "Does speculation pay?", verdict, "▼ HARMFUL"),
    Asked("Since when does it lose?", "harmful", "payoff",
          "Verdict over time", since, "▼ HARMFUL for about 75 minutes"),
    Asked("Which model loses, and where?", "two-clusters", "payoff",
          "Which model loses?", losers, "meta-llama/Llama-3.3-70B-Instruct in us-2"),
    Asked("Is K too high, and which K should it be?", "harmful", "cost",
          "What would each K give?", advised, "K=0"),
    Asked("Did the deployment at noon change acceptance?", "k-change", "payoff",
          "Mean acceptance length against break-even", change_of_k, "K 5: longer, K 2: shorter"),
    Asked("Is it the load or the drafts?", "loads", "load",
          "Is it load or drafts?", load_or_drafts, "speedup falls: load"),
    Asked("From which load on does it lose?", "loads", "cost",
          "At which load does it pay?", first_loss, "batch over 256"),
    Asked("Why are there tokens but no gain?", "bypassed", "payoff", "What do engines do?", most, "bypassed"),
    Asked("Is acceptance as it usually is?", "day", "acceptance", "Is acceptance as usual?", band, "below"),
    Asked("Are the last positions drafted for nothing?", "harmful", "acceptance",
          "Acceptance by position now", useless_positions, "position 1, position 2, position 3, position 4"),
    Asked("Do users get their tokens faster than without?", "measured", "cost",
          "Estimated and measured speedup", measured, "faster"),
    Asked("Is everything polled?", "exporter-down", "exporter",
          "Which targets were up?", watched, "✖ EXPORTER DOWN"),
    Asked("Who loses while the mean looks healthy?", "requests", "requests",
          "Which requests lose?", losing_kinds, "story at 1+, story at 0.7-1"),
)  # fmt: skip
