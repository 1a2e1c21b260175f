"""Plots for reports, as SVG.

They are drawn with matplotlib, the optional extra ``reports``, which the first plot
imports. The same data give the same bytes: there is no date and no random identifier,
and matplotlibrc files are ignored.

Lines and text are black; a dark page inverts the picture. Series differ in marker too.
"""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..config.options import ConfigError
from ..economics.statistics import Interval
from .terminal import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Okabe and Ito, "Color Universal Design" (2008): distinguishable with all common forms
#: of colour blindness. Those first that contrast with both white and black.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")
#: Dashes change when the colours are used up.
_DASHES = ("-", "--", ":", "-.")
INK = "black"
#: Inches. The page scales them; they set how large the text is in proportion.
_WIDTH = 6.0
HEIGHT = 3.4
_RC: Any = {
    "svg.fonttype": "none",
    # Without it, identifiers are random.
    "svg.hashsalt": "vllm-specdec-exporter",
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class Plot(Struct, frozen=True):
    """A drawing with its caption, and a description for readers without the picture."""

    caption: str
    svg: str
    description: str

    @property
    def address(self) -> str:
        """The picture as the address of an ``<img>``."""
        encoded = base64.b64encode(self.svg.encode()).decode()
        return f"data:image/svg+xml;base64,{encoded}"


class Series(Struct, frozen=True):
    """A named line through its points, in their order: places on the horizontal axis,
    and the values there with their intervals, if any.
    """

    name: str
    points: Mapping[float, Interval]


def require() -> None:
    """Import matplotlib, so that a command fails before its work, not after;
    ConfigError if it is missing.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "plots need matplotlib, which is not installed: pip install matplotlib"
        ) from error


def lines(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    y_range: tuple[float | None, float | None] = (None, None),
) -> Plot:
    """Return lines over a numeric axis, with the intervals of their points.

    Labels have the unit; `y_range` has the ends of the vertical axis, ``None`` for
    those of the data. Raises ConfigError without matplotlib.
    """
    drawn = [line for line in series if line.points]
    with drawing() as (figure, axes):
        ticks: set[float] = set()
        for line in drawn:
            ticks.update(line.points)
            name = printable(line.name)
            # matplotlib leaves names that begin with an underscore out of the legend.
            if name.startswith("_"):
                name = f" {name}"
            axes.errorbar(
                list(line.points),
                [value.value for value in line.points.values()],
                yerr=_reach(line.points.values()),
                label=name,
                markersize=5.5,
                capsize=3.5,
                elinewidth=1.2,
            )
        # More ticks than a dozen would overlap.
        if 1 < len(ticks) <= 12:
            axes.set_xticks(sorted(ticks), [f"{tick:g}" for tick in sorted(ticks)])
        axes.set_xlabel(printable(x_label))
        axes.set_ylabel(printable(y_label))
        axes.set_ylim(bottom=y_range[0], top=y_range[1])
        axes.grid(visible=True, axis="y", color=INK, alpha=0.15, linewidth=0.6)
        if len(drawn) > 1:
            figure.legend(loc="outside upper left", ncols=2, frameon=False)
        description = "; ".join(_values(line, x_label) for line in drawn)
        return Plot(title, svg(figure, title, description), description)


def _values(line: Series, x_label: str) -> str:
    """Return a line in words, for readers without the picture."""
    values = [f"{y.value:.3g} at {x_label} {x:g}" for x, y in line.points.items()]
    return f"{line.name}: {', '.join(values)}"


def _reach(values: Iterable[Interval]) -> list[list[float]]:
    """Return how far intervals reach below and above their values; NaN without one,
    which is not drawn.
    """
    below = []
    above = []
    for value in values:
        if value.low is None or value.high is None:
            below.append(math.nan)
            above.append(math.nan)
        else:
            # Rounding may put an end on the wrong side, which matplotlib refuses.
            below.append(max(0.0, value.value - value.low))
            above.append(max(0.0, value.high - value.value))
    return [below, above]


def bars_with_intervals(
    title: str,
    bars: Mapping[str, Interval | None],
    *,
    x_label: str,
    form: str = "{:.2f}",
    reference: float | None = None,
) -> Plot:
    """Return horizontal bars by name with their values beside them.

    `reference` is a value to draw a line at, such as 1 for break-even. Raises
    ConfigError without matplotlib.
    """
    # Inches: the axis and its label, and a row for each bar.
    height = max(1.6, 0.9 + 0.42 * len(bars))
    labels = {}
    for name, bar in bars.items():
        labels[name] = form.format(bar.value) if bar else "none"
    with drawing(height) as (figure, axes):
        for row, (name, bar) in enumerate(bars.items()):
            value = bar or Interval(0.0)
            axes.barh(row, value.value, height=0.55, color=PALETTE[0])
            axes.errorbar(
                value.value,
                row,
                xerr=_reach([value]),
                ecolor=INK,
                capsize=4,
                elinewidth=1.2,
                fmt="none",
            )
            axes.annotate(
                labels[name],
                (max(value.value, value.high or 0.0), row),
                xytext=(6, 0),
                textcoords="offset points",
                verticalalignment="center",
            )
        axes.set_yticks(range(len(bars)), list(map(printable, bars)))
        axes.set_xlabel(printable(x_label))
        # For the values beside the bars.
        axes.margins(x=0.12)
        # The first bar on top, where a reader begins.
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        if reference is not None:
            axes.axvline(reference, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        description = "; ".join(f"{name} {label}" for name, label in labels.items())
        return Plot(title, svg(figure, title, description), description)


@contextmanager
def drawing(height: float = HEIGHT) -> Iterator[tuple[Figure, Axes]]:
    """Provide a figure with one pair of axes. The settings do not depend on
    matplotlibrc files.

    The `height` is in inches. Raises ConfigError without matplotlib.
    """
    require()
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.figure import Figure

    looks = cycler(linestyle=_DASHES) * cycler(color=PALETTE, marker=_MARKERS)
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC, **{"axes.prop_cycle": looks})
        # Characters that matplotlib's font lacks are rendered by the browser.
        warnings.filterwarnings("ignore", message="(?i).*glyph")
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        yield figure, figure.add_subplot()


def svg(figure: Figure, title: str, description: str) -> str:
    """Return the figure as an SVG document, which has its title and description."""
    metadata = {
        "Date": None,
        "Title": printable(title),
        "Description": printable(description),
    }
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    return buffer.getvalue()
