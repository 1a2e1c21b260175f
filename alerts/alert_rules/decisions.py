"""What should be changed?

Each has the label `action`, and `recommended_k` if there is one, for a webhook.
"""

from mixin import WARNING

from . import series as s
from . import text as t
from .rule import Alert, Group, Record

#: A change of K or of the method is for all engines.
_MOST_ADVISED = (
    f"  and count by ({s.MODEL}) ({s.ADVISED}) > 0.5 * count by ({s.MODEL}) "
    f"({s.VOTERS})\n"
    f"  unless on ({s.MODEL}) {s.METHOD}"
)
_AS_LOADED = "model:vllm_specdec_load_is_as_when_it_paid:bool"
_STEADY = "model:vllm_specdec_k_advice_is_steady:bool"
_ADVISED = "model:vllm_specdec_recommended_num_speculative_tokens:median"
#: Why Disable does not begin, does not go on, or is not sent, by the label `why`.
_SILENCED = "model:vllm_specdec_disable_is_silenced:bool"
#: What a change of K must gain to be worth a restart.
_WORTH_A_TICKET = "1.05"
#: Not while the verdict on an engine is unknown.
_SPEED = t.value(
    f"{s.SPEEDUP}{{MODEL}} unless on () "
    'vllm_specdec_payoff{verdict="unknown",MODEL} == 1',
    t.TIMES,
    "speedup {}",
)
#: A dead band: once it fires, it goes on until the value is this much above the
#: threshold.
_BAND = 1.05


def group() -> Group:
    """Return the group of decisions."""
    disable = _disable_ticket()
    return Group(
        "vllm-specdec.decisions",
        (
            _silences(),
            disable,
            _measure(),
            _disable_while_paged(disable),
            _as_loaded(),
            _reenable(),
            _steady_advice(),
            _change_k(
                "increase_k",
                "larger",
                f"floor(quantile_over_time(0.05, {_ADVISED}[1d])) > {s.K}",
            ),
            _change_k(
                "decrease_k",
                "smaller",
                f"ceil(quantile_over_time(0.95, {_ADVISED}[1d])) < {s.K} > 0",
            ),
            _switch(),
            _near_break_even(),
        ),
        s.LONG_INTERVAL,
    )


#: What the rule compared, each with its value, and then with its threshold; only what
#: is too low.
_LAST = f"last_over_time({s.DECISIVE}{{METHOD}}[1h])"


def _limits(values: str) -> str:
    """Return the thresholds of these values, each with the label `measure`."""
    return f"0 * ({values}) + on (threshold) group_left () {s.THRESHOLD}{{MODEL}}"


_FAILED = f"{_LAST} < on (threshold) group_left () ({_BAND} * {s.THRESHOLD}{{MODEL}})"
_VALUES = t.each(_FAILED, "measure", t.NUMBER)
_LIMITS = t.each(_limits(_FAILED), "measure", t.NUMBER)
#: The lowest that contradicts the guess.
_LEAST = f'min_over_time({s.DECISIVE}{{measure!="speedup",METHOD}}[3h])'
_BELOW = f"{_LEAST} < on (threshold) group_left () {s.THRESHOLD}{{MODEL}}"


def _silenced(why: str) -> str:
    """Return that Disable is silenced for one reason."""
    return f'ignoring (why) {_SILENCED}{{why="{why}"}}'


#: It pays, or what should be switched off is off or gone.
_PAYS_OR_OFF = f"unless ({s.NOT_LOSING} or {s.MAY_PAY})\n  unless {_silenced('off')}"


def _silences() -> Record:
    disable = s.firing("Disable", 'action="disable"')

    def well(window: str) -> str:
        return (
            f"count_over_time(({s.PUBLISHED_RULE} unless {s.DISABLE_RULE} < "
            f"{_BAND})[{window}:3m]) > 4"
        )

    waves = (
        "  # too low yesterday, and well since\n"
        f"  (count_over_time(({s.DISABLE_RULE} < 1)[6h:3m] offset 21h) > 4\n"
        f"    and {well('12h')})\n"
        "  or # well again within a day of the last time\n"
        f"  ({well('30m')}\n"
        f"    and on ({s.MODEL}, method) count_over_time({disable}[1d]))"
    )
    asked = s.told("Disable", 'action="measure"')
    judged = f"last_over_time({s.DISABLE_RULE}[1h])"
    info = f"last_over_time(vllm_specdec_info[{s.LOOK_BACK}])"
    # Where the model has engines: a gap in scraping ends nothing.
    off = (
        "  # no engine has the method\n"
        f'  (last_over_time({s.DISABLE_RULE}{{method!=""}}[1h]) '
        f"and on ({s.MODEL}) {info} unless on ({s.MODEL}, method) {info})\n"
        "  or # several methods now\n"
        f'  (last_over_time({s.DISABLE_RULE}{{method=""}}[1h]) '
        f"and on ({s.MODEL}) {s.METHOD})\n"
        "  or # tokens without drafts\n"
        f"  ({judged} and on ({s.MODEL}) ({s.UNDRAFTED}))"
    )

    def harmful(*matchers: str) -> str:
        return f"count_over_time({s.firing('Harmful', *matchers)}[2h])"

    # What it said of one method is no news of another.
    of_all = harmful('method=""')
    harm = (
        f"  ({judged} and on ({s.MODEL}, method) {harmful()})\n"
        f"  or ({judged} and on ({s.MODEL}) {of_all})"
    )
    reasons = {"waves": waves, "asked": f"  {asked}", "off": off, "harm": harm}
    return Record(
        _SILENCED,
        s.labelled(
            "why",
            **{
                why: f"group by ({s.MODEL}, method) (\n{reason}\n)"
                for why, reason in reasons.items()
            },
        ),
        why=(
            "What keeps the rules of Disable below quiet, by the label why; each "
            "reason is read by the rule that it names. What they "
            "read is in recording.yml, from top to bottom: decisive (acceptance, "
            "length and speedup), published_rule (the lowest of the former two over "
            "its threshold, so that 1 is the limit), is_known_not_to_lose, "
            "may_pay_by_a_guess, and disable_rule (the lowest of all three, where "
            "neither of these holds).\n"
            "- waves: action=disable does not begin, because yesterday within three "
            "hours of this time it was too low for a quarter of an hour (more than "
            "four samples, one in three minutes) and has been well for as long since, "
            "as with a batch every night; or because it fired within a day, and has "
            "been well for a quarter of an hour in the last half hour.\n"
            "- asked: action=measure fires once in six days.\n"
            "- off: action=disable does not go on, because the method has no engines, "
            "but the model has; or the model has several methods now, and is judged as "
            "a whole no more; or tokens have no drafts.\n"
            "- harm: the ticket is not sent, because Harmful has told of it within two "
            "hours, of this method or of the model. The rule for programs fires then."
        ),
    )


def _fired(action: str, *matchers: str) -> str:
    """Return that Disable fires, or fired within a quarter of an hour.

    After a start Prometheus writes no ALERTS for two evaluations: between those of a
    group of three minutes lie nine, and a plain selector looks back five.
    """
    firing = s.firing("Disable", f'action="{action}"', *matchers)
    return f"last_over_time({firing}[15m])"


def _firing(action: str) -> str:
    return f"on ({s.MODEL}, method) {_fired(action)}"


def _disable_ticket() -> Alert:
    return Alert(
        name="Disable",
        subject="decision",
        expr=(
            f"({s.DISABLE_RULE} < 1 unless {_silenced('waves')})\n"
            f"or (last_over_time({s.DISABLE_RULE}[1h]) < {_BAND}\n"
            f"  and {_firing('disable')}\n"
            f"  {_PAYS_OR_OFF})"
        ),
        hold="15m",
        summary="Speculation should be switched off: acceptance or speedup is too low.",
        description=(
            f"For 15 minutes a measure of {t.WHO['model']}{t.BY_METHOD} was below its "
            "threshold for disabling, and it has not been 5 % above it since. While "
            "traffic is too thin to judge, the value is the last that could be judged, "
            "at most an hour old."
        ),
        action=(
            f"Switch speculation off{t.ON_METHOD}: start vLLM without "
            "--speculative-config. Or try "
            "another method first: vllm-specdec-exporter plan."
        ),
        value=_VALUES,
        threshold=_LIMITS,
        sample=t.drafts("5m", t.OF_ALL),
        labels={"action": "disable", "recommended_k": "0"},
        why=(
            "Ticket, action=disable: below a threshold for 15 minutes, unless "
            "speculation is known to pay or there is but a guess, by which it may "
            "pay. It stands until the value is 5 % above the threshold or speculation "
            "pays; while traffic is too thin to judge, for an hour."
        ),
    )


def _measure() -> Alert:
    def of_engines(aggregation: str, gauge: str) -> str:
        last = f"last_over_time(vllm_specdec_{gauge}[{s.LOOK_BACK}])"
        return (
            f"({aggregation}({last} and on ({s.ENGINE}) {s.METHOD}{{METHOD}}) "
            f"or ({aggregation}({last}) unless on () {s.METHOD}{{MODEL}}))"
        )

    values = {
        "lowest_estimate": of_engines("min", "guessed_speedup{MODEL}"),
        "intervals_from": of_engines("min", 'speedup_interval{bound="low",MODEL}'),
        "up_to": of_engines("max", 'speedup_interval{bound="high",MODEL}'),
    }
    guess = t.each(s.in_one_line("value", **values), "value", t.NUMBER, ": ")
    return Alert(
        name="Disable",
        subject="decision",
        expr=(
            f"({s.PUBLISHED_RULE} < 1\n"
            f"  or (min_over_time({s.PUBLISHED_RULE}[3h]) < 1\n"
            f"    and {_firing('measure')}))\n"
            f"and {s.MAY_PAY}\n"
            f"unless {s.NOT_LOSING}\n"
            f"unless {_silenced('asked')}"
        ),
        hold="15m",
        summary=(
            "Acceptance is below the threshold for disabling, but by the estimate "
            "speculation may pay: measure."
        ),
        description=(
            f"Within the last 3 hours {t.WHO['model']}{t.BY_METHOD} accepted too few "
            "draft tokens for 15 minutes or more, by the thresholds below: those of "
            "the published rule for draft models, and the break-even of other methods. "
            "By the speedup that is estimated for its engines "
            f"it may pay, which is not certain{guess}."
        ),
        action=(
            "Measure: record a baseline with vllm-specdec-exporter baseline, or "
            "calibrate; if there is one, wait for more requests. Then this alert "
            "decides or ends."
        ),
        value=t.each(_BELOW, "measure", t.NUMBER, "lowest "),
        threshold=t.each(_limits(_BELOW), "measure", t.NUMBER),
        labels={"action": "measure", "reason": "estimate"},
        why=(
            "Ticket, action=measure, in place of action=disable: acceptance is too "
            "low, but by a guess speculation may pay. It stands for "
            "three hours after acceptance was last too low, ends after 12 hours, and "
            "is not told again within six days: measuring is asked for once."
        ),
    )


def _disable_while_paged(disable: Alert) -> Alert:
    ticket = _fired("disable", f'severity="{WARNING}"')
    return Alert(
        name="Disable",
        severity="none",
        subject="decision",
        expr=(
            f"max by ({s.MODEL}, method) ({ticket})\n"
            f"unless (max_over_time({s.DISABLE_RULE}[15m]) >= {_BAND})\n"
            f"{_PAYS_OR_OFF}\n"
            f"and {_silenced('harm')}"
        ),
        hold="",
        summary=disable.summary,
        description=(
            f"VLLMSpecDecodeHarmful has fired for {t.WHO['model']}{t.BY_METHOD} "
            "within 2 hours, so the ticket on disabling is not sent. This alert brings "
            "the decision to programs."
        ),
        action=disable.action,
        labels=disable.labels,
        why=(
            "For programs, action=disable: if Harmful has fired within two hours, "
            "Alertmanager hides the ticket above, because one fault is one "
            "notification. Of severity none, so it goes to no person."
        ),
    )


def _as_loaded() -> Record:
    peak_load = "max_over_time(model:vllm_specdec_requests_running:avg1h[1d])"
    beneficial, losing = (
        f'model:vllm_specdec_judged_requests_running:avg5m{{verdict="{verdict}"}}'
        for verdict in ("beneficial", "harmful")
    )
    return Record(
        _AS_LOADED,
        f"group by ({s.MODEL}) (\n"
        f"  {peak_load} <= ignoring (verdict) max_over_time({beneficial}[7d])\n"
        f"  unless {peak_load} >= ignoring (verdict) min_over_time({losing}[7d])\n"
        "  and max_over_time(model:vllm_specdec_generation_tokens:rate5m[1h]) > 0\n)",
        why=(
            "It generates, and the load of the last day is one at which speculation "
            "was beneficial last week, and at which it never lost."
        ),
    )


def _steady_advice() -> Record:
    return Record(
        _STEADY,
        f"group by ({s.MODEL}) (\n  {s.ADVISED_SPEEDUP} >= {_WORTH_A_TICKET}\n"
        f"  and last_over_time({_ADVISED}[2h] offset 22h)\n"
        f"  unless max_over_time({s.K}[1d]) > min_over_time({s.LEAST_K}[1d])\n"
        f'  unless ignoring (action) {s.ADVICE}{{action="switch_method"}} > 0.5\n'
        f"  and {s.ENOUGH_30M}\n{_MOST_ADVISED}\n)",
        why=(
            "There has been advice on K for a day in which K did not change, for most "
            "engines of the model's only method. It is worth a restart, and no other "
            "method is advised."
        ),
    )


def _reenable() -> Alert:
    off = (
        f"min by ({s.MODEL}) "
        f'(last_over_time(vllm_specdec_activity{{state="off"}}[{s.LOOK_BACK}])) == 1'
    )
    running = "model:vllm_specdec_requests_running:avg1h"
    paid = "model:vllm_specdec_beneficial_num_speculative_tokens:max"
    return Alert(
        name="Reenable",
        subject="decision",
        expr=(
            f'count_values by ({s.MODEL}) ("recommended_k", '
            f"last_over_time({paid}[7d]))\n"
            f"and on ({s.MODEL}) ({off})\n"
            f"and on ({s.MODEL}) {_AS_LOADED}\n"
            f"unless on ({s.MODEL}) count_over_time(\n"
            f"  {s.firing('Disable')}[1d]\n"
            ")"
        ),
        hold="1h",
        keep="1h",
        summary="Speculation is off, though it was beneficial at this load.",
        description=(
            f"{t.WHO['model']} runs without speculation. Within the last week "
            "speculation with K = {{ $labels.recommended_k }} was beneficial at "
            "the highest load of the last day or a higher one."
        ),
        action="Start vLLM with last week's speculative config, and check the payoff.",
        value=t.value(running, t.COUNT, "{} requests run per engine"),
        threshold="the highest load of the last 7 days at which it was beneficial",
        labels={"action": "enable"},
        why=(
            "Speedup falls as the batch grows, so K that paid at a load above the "
            "day's peak pays now. Silent if it lost at this load or a lower one, and "
            "for a day after Disable fired."
        ),
    )


def _change_k(action: str, size: str, advised: str) -> Alert:
    k = "num_speculative_tokens"
    no_gain = f'{s.TRIED} < {_WORTH_A_TICKET}, "recommended_k", "$1", "{k}", "(.+)"'
    return Alert(
        name="KChangeAdvised",
        subject="decision",
        expr=(
            f'count_values by ({s.MODEL}) ("recommended_k",\n  {advised}\n)\nand '
            f"on ({s.MODEL}) {_STEADY}\n"
            f"unless on ({s.MODEL}, recommended_k) label_replace({no_gain})"
        ),
        hold="15m",
        keep="1h",
        summary=f"A {size} K would be faster all day.",
        description=(
            "K = {{ $labels.recommended_k }} was advised as faster for most "
            f"engines of {t.WHO['model']} through the last day, at nearly every load "
            "that it had."
        ),
        action=(
            "Set num_speculative_tokens to {{ $labels.recommended_k }}, on one replica "
            "first; the status page has the config to paste."
        ),
        dashboard="deep-dive",
        value=t.value(s.K, t.COUNT, "K = {}"),
        threshold="K = {{ $labels.recommended_k }}",
        sample=t.drafts("30m"),
        context=t.each(
            f"{s.ADVISED_GAIN}{{MODEL}}",
            "basis",
            t.PERCENT,
            "gain of the K that is advised now: ",
        ),
        labels={"action": action},
        why=(
            (
                "The exporter's advice, which is a lower bound for a smaller K and "
                "cautious for a larger one. Of the engines the median, of the day all "
                "but a twentieth: if the best K changes with the load, a schedule "
                "helps and no ticket does. A gain below 5 % is shown on the status "
                "page only. A K that has run at this load was measured, and gained as "
                "much."
            )
            if action == "increase_k"
            else ""
        ),
    )


def _switch() -> Alert:
    return Alert(
        name="MethodChangeAdvised",
        subject="decision",
        expr=(
            f'round({s.ADVICE}{{action="switch_method"}}, 0.01) > 0.5\nand on '
            f"({s.MODEL}) {s.ENOUGH_30M}\nunless on ({s.MODEL}) {s.METHOD}"
        ),
        hold="1h",
        keep="15m",
        summary="Another speculation method should be tried.",
        description=(
            "For an hour, by the exporter's estimate even the best K gains little for "
            f"most engines of {t.WHO['model']}, and acceptance is below what the "
            "method usually reaches."
        ),
        action=(
            "Try another method on the same traffic, and compare: "
            "vllm-specdec-exporter compare."
        ),
        dashboard="deep-dive",
        value=t.this(t.PERCENT) + " of the engines",
        threshold="50%",
        sample=t.drafts("30m"),
        context=_SPEED,
        labels={"action": "switch_method"},
    )


def _near_break_even() -> Alert:
    acceptance = f"{s.ACCEPTANCE}:ratio_rate30m"
    enough = s.compare(s.rounded(acceptance), ">=", "disable_acceptance_ratio")
    in_5m = s.compare(f"{s.ACCEPTANCE}:ratio_rate5m", ">=", "disable_acceptance_ratio")
    return Alert(
        name="NearBreakEven",
        severity="info",
        subject="decision",
        expr=(
            f"{s.compare(enough, '<', 'break_even_acceptance_ratio')}\n"
            f"and {s.ENOUGH_30M}\n"
            f"and {in_5m}\n"
            f"unless {s.PAYS}\n"
            f"unless on ({s.MODEL}) "
            f'{s.ENGINES}{{basis="measured"}}'
        ),
        hold="30m",
        keep="30m",
        summary="Acceptance is near break-even.",
        description=(
            f"{t.WHO['model']} accepts {t.this(t.PERCENT)} of its draft tokens: not "
            "below the threshold for disabling, and below break-even."
        ),
        action=(
            "Measure P99 under real load first: record a baseline with "
            "vllm-specdec-exporter baseline, and compare."
        ),
        value=t.this(t.PERCENT) + " accepted",
        threshold=t.in_force("break_even_acceptance_ratio", t.PERCENT),
        sample=t.drafts("30m"),
        context=_SPEED,
        labels={"action": "measure"},
        why="The published range. Silent if speculation is beneficial or measured.",
    )
