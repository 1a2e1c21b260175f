"""Field configuration: what a value looks like, in Grafana's JSON; units and words that
panels share.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from .palette import NEUTRAL, SKY

Json = dict[str, Any]

#: Shown where nothing is drafted, or nothing known.
NOTHING = "no drafts, or no exporter"
TIMES: Json = {"unit": "suffix:×", "decimals": 2}
RATIO: Json = {"unit": "percentunit", "decimals": 0, "least": 0, "most": 1}
#: No draft gives less than its own token. An axis from there on does not make a fall
#: of a hundredth look like a collapse.
LENGTH: Json = {"unit": "short", "decimals": 2, "soft_least": 1}
COUNT: Json = {"unit": "short", "decimals": 0, "least": 0}
#: Grafana's own unit of hours says "1 hour" and "7.5 hour".
HOURS: Json = {"unit": "suffix: h", "decimals": 1}
#: One of three panels in a line.
A_THIRD: Json = {"no_value": NOTHING, "width": 8, "rows": 9}
#: Events per minute by kind, stacked; a single one does not fill the panel.
A_MINUTE: Json = {
    "unit": "suffix:/min",
    "decimals": 1,
    "least": 0,
    "soft_most": 1,
    "stack": True,
    "fill": 25,
}
#: Series that are thresholds in force; their names begin with this.
LIMIT = "limit: "


def word_mapping(codes: Mapping[int, tuple[str, str]]) -> list[Json]:
    """Return the value mapping from codes to a word and a colour."""
    return [
        {
            "type": "value",
            "options": {
                str(code): {"text": text, "color": color, "index": index}
                for index, (code, (text, color)) in enumerate(codes.items())
            },
        }
    ]


def pattern(regex: str, text: str, color: str = "") -> Json:
    """Return the value mapping from texts that match a regular expression as a whole to
    others, with its groups.
    """
    result = {"text": text, "color": color} if color else {"text": text}
    return {"type": "regex", "options": {"pattern": regex, "result": result}}


def override(matcher: str, name: str, **properties: Any) -> Json:
    """Return an override of the fields that a matcher finds; a dot in a property is
    written `__`.
    """
    return {
        "matcher": {"id": matcher, "options": name},
        "properties": [
            {"id": key.replace("__", "."), "value": value}
            for key, value in properties.items()
        ],
    }


def named(name: str, **properties: Any) -> Json:
    """Return an override of the field of this name."""
    return override("byName", name, **properties)


def matching(pattern: str, **properties: Any) -> Json:
    """Return an override of the fields whose names match a regular expression."""
    return override("byRegexp", f"/{pattern}/", **properties)


def fixed(color: str) -> Json:
    """Return the colour mode of one colour."""
    return {"mode": "fixed", "fixedColor": color}


def colored(colors: Mapping[str, str]) -> list[Json]:
    """Return overrides that give fields their colours by name."""
    return [named(name, color=fixed(color)) for name, color in colors.items()]


def band(top: str, bottom: str, color: str = SKY) -> list[Json]:
    """Return overrides that fill the area between the lines of these names."""
    line: Json = {"custom__lineWidth": 0, "color": fixed(color)}
    return [
        named(top, **line, custom__fillOpacity=20, custom__fillBelowTo=bottom),
        named(bottom, **line),
    ]


#: Dashes of the threshold that calls for action, and of another in the same panel.
DASHED = (8, 6)
DOTTED = (2, 5)


def threshold_lines(
    color: str = NEUTRAL, *words: str, dash: tuple[int, int] = DASHED
) -> Json:
    """Return the override that draws thresholds in force as thin dashed lines.

    Args:
        color: of the lines; none for that of each name.
        words: with which their names begin; without, all thresholds.
        dash: pixels of a dash and of a gap.
    """
    colour = {"color": fixed(color)} if color else {}
    return matching(
        f"^{LIMIT}({'|'.join(words)}).*" if words else f"^{LIMIT}.*",
        **colour,
        custom__lineStyle={"fill": "dash", "dash": list(dash)},
        custom__lineWidth=1,
        custom__fillOpacity=0,
        custom__showPoints="never",
    )


def positions(colors: Sequence[str], far: str) -> list[Json]:
    """Return overrides that colour the series `position 0`, `position 1` ... in an
    order to be seen.
    """
    return [
        *(
            named(f"position {index}", color=fixed(color))
            for index, color in enumerate(colors)
        ),
        matching(f"^position ([{len(colors)}-9]|\\d\\d)$", color=fixed(far)),
    ]
