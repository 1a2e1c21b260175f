"""Plots for HTML reports, as SVG elements.

They are drawn with matplotlib, the optional extra ``reports``, which the first plot
imports. The same data give the same bytes: there is no date and no random identifier,
and matplotlibrc files are ignored.

Text and axes have the colour of the text around the plot (``currentColor``), for light
and dark pages. Series differ in marker and dash too.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
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
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
#: Replaced by ``currentColor`` in the SVG.
INK = "#010203"
#: Inches. The page scales them; they set how large the text is in proportion.
_WIDTH = 6.0
HEIGHT = 3.4
_RC: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 10.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class Plot(Struct, frozen=True):
    """A drawing with its caption."""

    caption: str
    svg: Markup


class Point(Struct, frozen=True):
    """One point of a line; `low` and `high` bound its interval, if any."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class Series(Struct, frozen=True):
    """A named line through its points, in their order."""

    name: str
    points: tuple[Point, ...]

    @property
    def xs(self) -> list[float]:
        """The place of each point on the horizontal axis."""
        return [point.x for point in self.points]


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
    description: str = "",
    y_range: tuple[float | None, float | None] = (None, None),
) -> Markup:
    """Return lines over a numeric axis, with the intervals of their points, as an
    ``<svg>`` element.

    `title` and `description` are for screen readers; labels have the unit; `y_range`
    has the ends of the vertical axis, ``None`` for those of the data. Raises
    ConfigError without matplotlib.
    """
    shown = [line for line in series if line.points]
    with drawing() as (figure, axes):
        places: set[float] = set()
        for line, look in zip(shown, _looks(), strict=False):
            _draw_line(axes, line, look)
            places.update(line.xs)
        ticks = sorted(places)
        # More ticks than a dozen would overlap.
        if 1 < len(ticks) <= 12:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xlabel(printable(x_label))
        axes.set_ylabel(printable(y_label))
        axes.set_ylim(bottom=y_range[0], top=y_range[1])
        axes.grid(visible=True, axis="y", color=INK, alpha=0.15, linewidth=0.6)
        if len(shown) > 1:
            figure.legend(loc="outside upper left", ncols=2, frameon=False)
        return svg(figure, title, description)


def _looks() -> Iterator[dict[str, Any]]:
    """Yield how lines look, one after the other: without end, in turns."""
    for colour, marker, dash in zip(
        cycle(PALETTE), cycle(_MARKERS), cycle(_DASHES), strict=False
    ):
        yield {"color": colour, "marker": marker, "linestyle": dash}


def _draw_line(axes: Axes, line: Series, look: dict[str, Any]) -> None:
    name = printable(line.name)
    # matplotlib leaves names that begin with an underscore out of the legend.
    if name.startswith("_"):
        name = f" {name}"
    axes.plot(
        line.xs,
        [point.y for point in line.points],
        label=name,
        linewidth=1.8,
        markersize=5.5,
        **look,
    )
    for point in line.points:
        if point.low is not None and point.high is not None:
            axes.errorbar(
                point.x,
                point.y,
                yerr=_reach(point.y, point.low, point.high),
                fmt="none",
                ecolor=look["color"],
                capsize=3.5,
                linewidth=1.2,
            )


def _reach(value: float, low: float, high: float) -> list[list[float]]:
    """Return how far an interval reaches below and above a value within it."""
    return [[max(0.0, value - low)], [max(0.0, high - value)]]


def bars_with_intervals(
    title: str,
    bars: Mapping[str, Interval | None],
    *,
    x_label: str,
    description: str = "",
    form: str = "{:.2f}",
    reference: float | None = None,
) -> Markup:
    """Return horizontal bars by name with their values beside them, as an ``<svg>``
    element.

    `title` and `description` are for screen readers; `reference` is a value to draw a
    line at, such as 1 for break-even. Raises ConfigError without matplotlib.
    """
    # Inches: the axis and its label, and a row for each bar.
    height = max(1.6, 0.9 + 0.42 * len(bars))
    with drawing(height) as (figure, axes):
        for row, bar in enumerate(bars.values()):
            _draw_bar(axes, row, bar, bar_label(bar, form))
        axes.set_yticks(range(len(bars)), list(map(printable, bars)))
        axes.set_xlabel(printable(x_label))
        # For the values beside the bars.
        axes.margins(x=0.12)
        # The first bar on top, where a reader begins.
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        if reference is not None:
            axes.axvline(reference, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        return svg(figure, title, description)


def _draw_bar(axes: Axes, row: int, bar: Interval | None, label: str) -> None:
    end = bar.value if bar else 0.0
    axes.barh(row, end, height=0.55, color=PALETTE[0])
    if bar and bar.low is not None and bar.high is not None:
        axes.errorbar(
            end,
            row,
            xerr=_reach(end, bar.low, bar.high),
            fmt="none",
            ecolor=INK,
            capsize=4,
            linewidth=1.2,
        )
        end = max(end, bar.high)
    axes.annotate(
        label,
        (max(end, 0.0), row),
        xytext=(6, 0),
        textcoords="offset points",
        verticalalignment="center",
    )


def bar_label(value: Interval | None, form: str) -> str:
    """Return the text beside a bar."""
    if value is None:
        return "none"
    return form.format(value.value)


@contextmanager
def drawing(height: float = HEIGHT) -> Iterator[tuple[Figure, Axes]]:
    """Provide a figure with one pair of axes. The settings do not depend on
    matplotlibrc files.

    The `height` is in inches. Raises ConfigError without matplotlib.
    """
    require()
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        # Characters that matplotlib's font lacks are rendered by the browser.
        warnings.filterwarnings("ignore", message="(?i).*glyph")
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, figure.add_subplot()


def svg(figure: Figure, title: str, description: str) -> Markup:
    """Return the figure as an ``<svg>`` element, independent of other figures in the
    page.

    `title` and `description` are for screen readers.
    """
    import matplotlib as mpl

    # Without it, identifiers are random.
    mpl.rcParams["svg.hashsalt"] = "vllm-specdec-exporter"
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    document = buffer.getvalue().decode()
    raw = document[document.index("<svg") :].rstrip()
    raw = re.sub(r"<metadata>.*?</metadata>\s*", "", raw, flags=re.DOTALL)
    # A style element would apply to the whole page.
    raw = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", raw, flags=re.DOTALL)
    raw = raw.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    raw = raw.replace("xlink:href", "href")
    raw = re.sub(INK, "currentColor", raw, flags=re.IGNORECASE)
    # Identifiers must be unique within the page.
    digest = hashlib.sha256(f"{title}\0{raw}".encode("utf-8", "replace"))
    prefix = f"p{digest.hexdigest()[:8]}"
    raw = re.sub(r'\bid="', f'id="{prefix}-', raw)
    raw = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", raw)
    attributes, _, content = raw.removeprefix("<svg").partition(">")
    return Markup(
        '<svg class="plot" role="img" aria-labelledby="{prefix}-title {prefix}-desc" '
        'stroke-linejoin="round" stroke-linecap="butt"{attributes}>'
        '<title id="{prefix}-title">{title}</title>'
        '<desc id="{prefix}-desc">{description}</desc>{content}'
    ).format(
        prefix=prefix,
        attributes=Markup(attributes),  # noqa: S704, what matplotlib wrote
        title=title,
        description=description or title,
        content=Markup(content),  # noqa: S704, what matplotlib wrote
    )
