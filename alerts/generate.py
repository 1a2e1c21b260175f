"""Write `alerts/rules/*.yml` from `alert_rules`, or check them.

python alerts/generate.py [--check] python alerts/generate.py --out FOLDER [--config
FILE] [--runbooks URL] [--grafana URL] [--alertmanager FILE]
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import mixin
from alert_rules import (
    activity,
    availability,
    boards,
    decisions,
    harm,
    objective,
    quality,
    recording,
    requests,
)
from alert_rules.yaml_text import document
from generated import bring_up_to_date

HERE = Path(__file__).parent
RULES = HERE / "rules"
ALERTMANAGER = HERE / "alertmanager.yml"

#: What a reader of any other file than that must know.
_ELSEWHERE = " Most records that are read here are in recording.yml."
#: What each file holds.
FILES = {
    "recording.yml": (recording.ABOUT, tuple(recording.groups())),
    "availability.yml": ("Does monitoring of speculation work?", availability.groups()),
    "activity.yml": ("Does speculation run as configured?", activity.groups()),
    "quality.yml": ("Is acceptance good, and as good as before?", quality.groups()),
    "boards.yml": (
        "What the dashboards read; of alerts, only KChangeAdvised reads some.",
        tuple(boards.groups()),
    ),
    "requests.yml": (
        "Do single requests lose by speculation, and does their observation work?",
        tuple(requests.groups()),
    ),
    "harm.yml": ("Does speculation hurt users?", harm.groups()),
    "decisions.yml": (
        (
            "What should be changed? Alerts with the label action, some with "
            "recommended_k."
        ),
        (decisions.group(),),
    ),
    "objective.yml": (
        (
            'The objective "speculation was worth it", and how fast its error budget '
            "is spent."
        ),
        tuple(objective.groups()),
    ),
}


def main() -> int:
    """Write or check the files; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail if a file is not current",
    )
    parser.add_argument("--out", type=Path, default=RULES, help="where the files go")
    parser.add_argument("--config", type=Path, help="your names, such as mixin.yml")
    parser.add_argument(
        "--runbooks", default="", metavar="URL", help="where your runbooks are served"
    )
    parser.add_argument("--grafana", default="", metavar="URL", help="your Grafana")
    parser.add_argument(
        "--alertmanager",
        type=Path,
        metavar="FILE",
        help="where alertmanager.yml goes, with your names",
    )
    args = parser.parse_args()
    if args.out == RULES and (
        args.config or args.runbooks or args.grafana or args.alertmanager
    ):
        parser.error("your names need --out: the committed files have none")
    try:
        names = mixin.read(args.config) if args.config else mixin.Mixin()
    except (OSError, ValueError) as error:
        parser.error(str(error))
    names = replace(
        names,
        runbooks=(args.runbooks or names.runbooks).rstrip("/"),
        grafana=(args.grafana or names.grafana).rstrip("/"),
    )
    texts = {
        args.out / name: document(
            about + _ELSEWHERE * (name != "recording.yml"), groups, names
        )
        for name, (about, groups) in FILES.items()
    }
    if args.alertmanager:
        texts[args.alertmanager] = names.alertmanager(ALERTMANAGER.read_text("utf-8"))
    return bring_up_to_date(texts, check=args.check)


if __name__ == "__main__":
    sys.exit(main())
