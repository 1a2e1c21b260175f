"""Words that stand on several boards, explained where they stand first: a description
is seen by those alone who point at it.
"""

from .panel import Text

_VERDICT = (
    "**Speedup**: speed of all output over that without speculation. A verdict has its "
    "interval. LIKELY: that includes 1, so a loss or a gain is probable, not certain; "
    "a loss of at least 95 % probability (the default) is alerted like a certain one. "
    "UNKNOWN: it includes 1 and neither is probable; *Do* says what to do. BYPASSED: "
    "requests, but no drafts. **Rests on**: drafts of five minutes, and the share of "
    "all tokens that came out of drafts."
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
    "**Engine-hour** (h): an hour of one scheduler of vLLM with all its GPUs; won "
    "within 24 hours: speculation saved it; below 0: it was lost; only "
    "while the speedup is known."
)
_MONEY = (
    "Money is in your currency, by the price of an engine-hour at the top of this page."
)
_OF_MODELS = f"{_VERDICT} {_BASIS} {_SINCE} {_HOURS}"


def of_models() -> Text:
    """Return the words of a verdict and of what is won."""
    return Text(content=_OF_MODELS, rows=4)


def of_money() -> Text:
    """Return the same with what that is worth."""
    return Text(content=f"{_OF_MODELS} {_MONEY}", rows=4)
