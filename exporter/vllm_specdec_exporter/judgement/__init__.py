"""Judgement: what the measures mean.

One question a module, each a pure function of measures and thresholds:

* `activity`: is the engine speculating at all?
* `quality`: how good is the acceptance, by the published rubric?
* `findings`: what is wrong, in words, and what to do about it?

Whether speculation pays (payoff) and which K it should have (advice) are questions of their own, and get
modules of their own beside these.
"""
