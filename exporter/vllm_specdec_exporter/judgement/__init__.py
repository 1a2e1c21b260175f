"""Judgement: what the measures mean.

One question a module, each a pure function of measures and thresholds:

* `case`: everything that the judgement of one engine rests on.
* `activity`: is the engine speculating at all?
* `quality`: how good is the acceptance, by the published rubric?
* `payoff`: is speculation worth it, by speedup and by the published rules of thumb?
* `advice`: which K should it have? `hysteresis`: when does that change?
* `current_advice`: the advice in force, with what is to be pasted.
* `findings`: what is wrong, in words, and what to do about it?
* `judge`: all of these on one case, as one `Judgement`.
"""
