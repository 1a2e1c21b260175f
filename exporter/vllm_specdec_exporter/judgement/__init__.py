"""Judgement: verdicts, advice and findings, as pure functions of measures and
thresholds.

* `case`: the input of the judgement of one engine.
* `activity`: is the engine speculating?
* `quality`: how good is its acceptance, by the published rubric?
* `payoff`: does speculation pay? `published_rules`: what do the rules of thumb say?
* `advising`: which K should it have (`advice`)? `hysteresis`: when does that change?
* `explanation`: why a verdict or advice is given.
* `findings`: problems and hints, with what to do.
* `judge`: all of these for one case, as one `Judgement`.
* `messages`: the sentences, in one table.
"""
