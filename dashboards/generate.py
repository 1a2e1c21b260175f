"""Write `dashboards/json/*.json` and `docs/reference/panels.md` from `*.dashboard.py`,
or check that they are current.

python dashboards/generate.py [--check]
python dashboards/generate.py --out FOLDER [--config FILE]
"""

import argparse
import importlib.util
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "alerts"))
from collections.abc import Iterator

import mixin
from generated import bring_up_to_date
from grafana_panels.catalogue import catalogue
from grafana_panels.dashboard import Dashboard, encode

HERE = Path(__file__).parent
JSON = HERE / "json"
CATALOGUE = HERE.parent / "docs" / "reference" / "panels.md"


def dashboards() -> Iterator[Dashboard]:
    """Yield the dashboard of every `*.dashboard.py`, as grafanalib's own command would
    find it.
    """
    for path in sorted(HERE.glob("*.dashboard.py")):
        spec = importlib.util.spec_from_file_location(path.stem.replace(".", "_"), path)
        if spec is None or spec.loader is None:
            msg = f"{path} cannot be loaded"
            raise ImportError(msg)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module.dashboard


def main() -> int:
    """Write or check the files; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail if a file is not current",
    )
    parser.add_argument("--out", type=Path, default=JSON, help="where the files go")
    parser.add_argument(
        "--config", type=Path, help="your names, such as alerts/mixin.yml"
    )
    args = parser.parse_args()
    if args.config and args.out == JSON:
        parser.error("--config needs --out: the committed files have their own names")
    try:
        names = mixin.read(args.config) if args.config else mixin.Mixin()
    except (OSError, ValueError) as error:
        parser.error(str(error))
    boards = list(dashboards())
    texts = {args.out / f"{board.uid}.json": encode(board, names) for board in boards}
    if args.out != JSON:
        return bring_up_to_date(texts, check=args.check)
    texts[CATALOGUE] = catalogue(boards)
    return bring_up_to_date(texts, JSON.glob("*.json"), check=args.check)


if __name__ == "__main__":
    sys.exit(main())
