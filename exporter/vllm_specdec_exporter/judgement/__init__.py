"""Judgement: verdicts, advice and findings, as pure functions of measures and
thresholds.

* `case`: the input of the judgement of one engine.
* `activity`: is the engine speculating?
* `quality`: how good is its acceptance, by the published rubric?
* `payoff`: does speculation pay, by speedup and by the published rules of thumb?
* `advice`: which K should it have, with the configuration to paste? `hysteresis`: when does that change?
* `findings`: problems and hints, with what to do.
* `judge`: all of these for one case, as one `Judgement`.
"""
