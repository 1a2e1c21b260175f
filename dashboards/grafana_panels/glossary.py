"""Words that stand on several boards, explained where they stand first: a description
is seen by those alone who point at it.
"""

from .panel import Text

_VERDICT = (
    "**Speedup**: speed of all output over that without speculation. A verdict has its "
    "interval. LIKELY: that includes 1, so a loss or a gain is probable, not certain; "
    "a loss of at least 95 % probability (the default) is alerted like a certain one."
)
_BASIS = (
    "**Basis**: *measured*: against requests or steps without speculation; "
    "*calibrated*: costs of steps were timed by `calibrate`, acceptance is live; "
    "*observed*: steps with drafts are timed, those without are modelled; "
    "*modelled*: nothing is timed here."
)
_SINCE = (
    "**All data**: the verdict is the same in all that Prometheus has of the model, at "
    "most 14 days."
)
_HOURS = (
    "**Engine-hour** (h): an hour of one scheduler of vLLM with all its GPUs; won: "
    "speculation saved it, negative: it cost it. Money is in your currency, by the "
    "price of an engine-hour at the top of this page."
)


def of_models() -> Text:
    """Return the words of a verdict."""
    return Text(content=f"{_VERDICT} {_BASIS} {_SINCE}", rows=3)


def of_hours() -> Text:
    """Return the same with what is won."""
    return Text(content=f"{_VERDICT} {_BASIS} {_SINCE} {_HOURS}", rows=3)
