"""Judgement: what the measures mean.

One question a module, each a pure function of measures and thresholds:

* `activity`: is the engine speculating at all?
* `quality`: how good is the acceptance, by the published rubric?
* `payoff`: is speculation worth it?
* `advice`: which K should it have? `rules`: what do the published rules of thumb say? `counsel`: the advice
  that stands, with what is to be pasted.
* `findings`: what is wrong, in words, and what to do about it? `agreement`: why do two judgements differ?
"""
