"""Write version and addresses wherever a file repeats them, or check that all of them
say the same.

    python release/version.py [--check | --ready]

The version is `__version__` of the package; the addresses are those of
release/publish.toml. What the package and its build compute from them is not here: only
texts that people and tools read as they are, such as the image in manifests and
documents.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from vllm_specdec_exporter import __version__

ROOT = Path(__file__).parents[1]
PUBLISH = ROOT / "release" / "publish.toml"

#: Releases only: what is a version for Python, for charts and for image tags alike.
VERSION = r"\d+\.\d+\.\d+"

_NAME = "vllm-specdec-exporter"
_HOST = r"[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?"
# Not the page of the dashboard `vllm-specdec-exporter` in Grafana, .../d/UID.
_URL = rf"https://{_HOST}/(?!d/)(?:[\w.-]+/)+{_NAME}(?![\w-])"
_REGISTRY = rf"{_HOST}(?:/[a-z0-9._-]+)*"
_IMAGE = rf"(?:[a-z0-9._-]+/)*{_NAME}"
#: The keys of release/publish.toml: what each has to be, as a pattern and in words.
KEYS = {
    "repository": (_URL, f"the repository's page, https://HOST/OWNER/{_NAME}"),
    "registry": (
        _REGISTRY,
        "host and path that image and chart are pushed to, without a scheme",
    ),
    "image": (_IMAGE, f"the image's name in the registry, which ends in {_NAME}"),
    "index-account": (r"[\w.-]+", "the account at the package index"),
}
#: `.invalid` is reserved (RFC 2606), so a placeholder never leads to anybody.
_PLACEHOLDER = re.compile(r"\bOWNER\b|\.invalid(?![\w.])")

_DOCUMENTS = (
    "README.md",
    "alerts/**/*.md",
    "dashboards/**/*.md",
    "docs/**/*.md",
    "helm/**/*.md",
)
_MANIFESTS = ("docker-compose.yml", "docs/**/*.y*ml", "helm/**/*.y*ml")
_CHART = "helm/vllm-specdec-exporter/Chart.yaml"


@dataclass(frozen=True)
class Place:
    """A text that repeats the version, or an address.

    Attributes:
        prefix: a regular expression of what stands before it.
        files: glob patterns of the files that may have it.
        fact: what stands there, one of `facts`.
        value: a regular expression of what may stand there now.
        suffix: a regular expression of what stands behind it.
    """

    prefix: str
    files: tuple[str, ...]
    fact: str = "version"
    value: str = VERSION
    suffix: str = r"(?![\w.])"

    @property
    def pattern(self) -> re.Pattern[str]:
        """What stands before, and the fact as the group `fact`."""
        return re.compile(
            rf"(?<![\w.-]){self.prefix}(?P<fact>{self.value}){self.suffix}",
            re.MULTILINE | re.ASCII,
        )


def _default(name: str, fact: str) -> Place:
    return Place(
        rf'^  {name}: "',
        (f"helm/{_NAME}/values.yaml",),
        fact,
        value=r'[^"\n]*',
        suffix='"$',
    )


PLACES = (
    Place(rf"{_NAME}:", _DOCUMENTS + _MANIFESTS),
    Place(r"dist/vllm_specdec_exporter-", _DOCUMENTS),
    Place(r"VERSION(?:=|: )", _DOCUMENTS + _MANIFESTS),
    Place(
        rf"name: \S+/{_NAME}\n(?: +newName: .*\n)? +newTag: ", _DOCUMENTS + _MANIFESTS
    ),
    Place(rf"name: {_NAME}\n +version: ", _DOCUMENTS),
    Place(r"^(?:appV|v)ersion: ", (_CHART,)),
    Place(
        rf'define "{_NAME}\.version" -}}}}\n', (f"helm/{_NAME}/templates/_names.tpl",)
    ),
    Place(
        "",
        (
            *_DOCUMENTS,
            *_MANIFESTS,
            "alerts/mixin.py",
            f"helm/{_NAME}/templates/_rules.tpl",
            "Dockerfile",
            "pyproject.toml",
        ),
        "repository",
        value=_URL,
        suffix="",
    ),
    Place(
        "",
        _DOCUMENTS + _MANIFESTS,
        "reference",
        value=rf"{_HOST}/{_IMAGE}",
        suffix=rf"(?=:{VERSION})",
    ),
    Place(
        "- name: ",
        _DOCUMENTS + _MANIFESTS,
        "reference",
        value=rf"{_HOST}/{_IMAGE}",
        suffix="$",
    ),
    Place(
        r"(?:image\.)?registry(?:: |=)",
        (*_DOCUMENTS, "helm/**/ci/*.yaml"),
        "registry",
        value=_REGISTRY,
        suffix="",
    ),
    Place(
        r"(?:image\.)?repository(?:: |=)",
        (*_DOCUMENTS, "helm/**/ci/*.yaml"),
        "image",
        value=_IMAGE,
        suffix="",
    ),
    Place(
        "IMAGE_REGISTRY: ",
        (".github/workflows/*.yml",),
        "registry",
        value=r"\S+",
        suffix="$",
    ),
    Place(
        "IMAGE: ", (".github/workflows/*.yml",), "reference", value=r"\S+", suffix="$"
    ),
    Place(
        r"^maintainers:\n  - name: ",
        (_CHART,),
        "index-account",
        value=r"\S+",
        suffix="$",
    ),
    Place(
        r"\bhelm (?:install|upgrade|upgrade --install) specdec ",
        _DOCUMENTS,
        "chart",
        value=rf"(?:helm/{_NAME}|oci://\S+ --version {VERSION})",
        suffix="(?= )",
    ),
    Place(
        rf"name: {_NAME}\n +version: {VERSION}\n +repository: ",
        _DOCUMENTS,
        "dependency",
        value=r"\S+",
        suffix="$",
    ),
    _default("registry", "published registry"),
    _default("repository", "published image"),
    _default("runbookUrl", "published runbooks"),
    Place(
        "^<!-- Generated by `make generate` from release/publish.toml. -->\n",
        ("README.md",),
        "installing",
        value=r"(?:.*\n)*?",
        suffix="<!-- End. -->$",
    ),
)

_NOT_PUBLISHED = (
    "No package or image is published yet; build them from this repository.\n"
)
_INSTALLING = """Install the package, or run the image:

<!-- not run: needs the package index, and a Docker engine; not yet by hand -->
```sh
pip install vllm-specdec-exporter   # add matplotlib for plots in reports
docker run --rm --network host --read-only {reference}:{version} \\
    --vllm.url=http://127.0.0.1:8000 --web.listen-address=127.0.0.1:9850
```

Or build them from this repository:
"""


def facts(version: str, publish: Mapping[str, str]) -> dict[str, str]:
    """Return what places repeat, by name.

    Args:
        version: that of the package.
        publish: the content of release/publish.toml.

    Raises:
        ValueError: a key is missing, unknown, or not of its form.
    """
    if publish.keys() != KEYS.keys():
        msg = (
            f"{PUBLISH.name} has the keys {', '.join(publish)}; wanted "
            f"{', '.join(KEYS)}"
        )
        raise ValueError(msg)
    for key, (pattern, meaning) in KEYS.items():
        if not re.fullmatch(pattern, publish[key]):
            msg = f"{PUBLISH.name}: {key} is {publish[key]!r}; wanted {meaning}"
            raise ValueError(msg)
    reference = f"{publish['registry']}/{publish['image']}"
    charts = f"oci://{publish['registry']}/charts"
    always = {**publish, "version": version, "reference": reference}
    if placeholders(publish):
        return always | {
            "chart": f"helm/{_NAME}",
            "dependency": f"file://../{_NAME}",
            "published registry": "",
            "published image": "",
            "published runbooks": "",
            "installing": _NOT_PUBLISHED,
        }
    return always | {
        "chart": f"{charts}/{_NAME} --version {version}",
        "dependency": charts,
        "published registry": publish["registry"],
        "published image": publish["image"],
        "published runbooks": f"{publish['repository']}/blob/main/alerts/runbooks",
        "installing": _INSTALLING.format(reference=reference, version=version),
    }


def placeholders(publish: Mapping[str, str]) -> list[str]:
    """Return the keys of release/publish.toml whose values are still placeholders."""
    return [key for key in KEYS if _PLACEHOLDER.search(publish[key])]


def files(patterns: tuple[str, ...]) -> list[Path]:
    """Return the files of the repository, without those of installed packages."""
    paths = set(chain.from_iterable(map(ROOT.glob, patterns)))
    return sorted(path for path in paths if "node_modules" not in path.parts)


def written(text: str, place: Place, fact: str) -> str:
    """Return a text in which the place says this."""

    def replace(match: re.Match[str]) -> str:
        # Only the fact: what stands around it may differ from match to match.
        start = match.start("fact") - match.start()
        end = match.end("fact") - match.start()
        return match[0][:start] + fact + match[0][end:]

    return place.pattern.sub(replace, text)


def wanted(values: Mapping[str, str]) -> Iterator[tuple[Path, str, str]]:
    """Yield the files that repeat a fact: path, text as it is, text as it should be.

    Raises:
        LookupError: no file has a place, so the place is described wrongly.
    """
    updated: dict[Path, str] = {}
    for place in PLACES:
        is_found = False
        for path in files(place.files):
            # An earlier place may have changed the file already.
            text = updated.get(path) or path.read_text("utf-8")
            if place.pattern.search(text):
                is_found = True
                updated[path] = written(text, place, values[place.fact])
        # A text was rewritten, and the pattern was left behind: it would never be
        # updated again.
        if not is_found:
            msg = f"no file says {place.prefix!r} and the {place.fact}"
            raise LookupError(msg)
    for path, text in sorted(updated.items()):
        yield path, path.read_text("utf-8"), text


def main() -> int:
    """Write or check the files; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail if a file says another",
    )
    parser.add_argument(
        "--ready",
        action="store_true",
        help="write nothing; fail if a placeholder is left",
    )
    args = parser.parse_args()
    if not re.fullmatch(VERSION, __version__):
        sys.stderr.write(
            f"error: __version__ is {__version__!r}, and not three numbers as in "
            "1.2.3\n"
        )
        return 1
    publish = tomllib.loads(PUBLISH.read_text("utf-8"))
    try:
        values = facts(__version__, publish)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    # Before the files are compared: they are current with placeholders, too.
    if args.ready:
        return _ready(publish)
    stale = [
        (path, expected)
        for path, current, expected in wanted(values)
        if current != expected
    ]
    names = ", ".join(str(path.relative_to(ROOT)) for path, _ in stale)
    if args.check and stale:
        sys.stderr.write(
            f"not of version {__version__} and release/publish.toml: {names}; run "
            "`make generate`\n"
        )
        return 1
    for path, expected in stale:
        path.write_text(expected, encoding="utf-8")
    if stale:
        sys.stdout.write(f"written: {names}\n")
    return 0


def _ready(publish: Mapping[str, str]) -> int:
    left = placeholders(publish)
    for key in left:
        sys.stdout.write(
            f"set {key} in release/publish.toml: {KEYS[key][1]} (now "
            f"{publish[key]!r})\n"
        )
    if not left:
        return 0
    sys.stdout.write("then run `make generate`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
