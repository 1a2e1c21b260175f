"""The state of an engine or a model as one number, for boards and recording rules.

A board needs a number to sort by, and to find a word and a colour for. Here it is made
once, of the exporter's own judgement; rules only take the worst of a model.
"""

from enum import IntEnum

from .activity import Activity, ActivityState
from .payoff import Payoff, PayoffVerdict


class StateCode(IntEnum):
    """What is known of an engine or a model, the worst first.

    Codes are sorted and published, so a new one would move none of these.
    """

    EXPORTER_DOWN = 0
    SERVER_DOWN = 1
    HARMFUL = 2
    LIKELY_HARMFUL = 3
    BYPASSED = 4
    UNKNOWN = 5
    MARGINAL = 6
    LIKELY_BENEFICIAL = 7
    BENEFICIAL = 8
    NOT_JUDGED = 9
    WARMING_UP = 10
    IDLE = 11
    OFF = 12
    NO_EXPORTER = 13


_INACTIVE = {
    ActivityState.BYPASSED: StateCode.BYPASSED,
    ActivityState.WARMING_UP: StateCode.WARMING_UP,
    ActivityState.IDLE: StateCode.IDLE,
    ActivityState.OFF: StateCode.OFF,
}
_LIKELY = {
    PayoffVerdict.HARMFUL: StateCode.LIKELY_HARMFUL,
    PayoffVerdict.BENEFICIAL: StateCode.LIKELY_BENEFICIAL,
}


def state_code(
    activity: Activity, payoff: Payoff, scheduled_k: int | None
) -> StateCode:
    """Return the code of an engine: its verdict, else the way that leans, else what it
    does.

    Args:
        activity: what it does.
        payoff: whether speculation pays.
        scheduled_k: K of its schedule at the present load; with 0, drafting nothing is
            what was configured.
    """
    state = activity.state
    if state is ActivityState.BYPASSED and scheduled_k == 0:
        return StateCode.OFF
    if state in _INACTIVE:
        return _INACTIVE[state]
    if state is None or payoff.verdict is None:
        return StateCode.NOT_JUDGED
    if payoff.likely is not None:
        return _LIKELY[payoff.likely]
    return StateCode[payoff.verdict.name]
