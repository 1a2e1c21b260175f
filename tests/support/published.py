"""The addresses of release/publish.toml, which all files repeat."""

import tomllib

from support.repository import ROOT

_PUBLISH = tomllib.loads((ROOT / "release/publish.toml").read_text("utf-8"))

REPOSITORY: str = _PUBLISH["repository"]
REGISTRY: str = _PUBLISH["registry"]
#: Values of the chart.
IMAGE = {"registry": REGISTRY, "repository": _PUBLISH["image"]}
#: The image, without a tag.
REFERENCE = f"{REGISTRY}/{_PUBLISH['image']}"
RUNBOOKS = f"{REPOSITORY}/blob/main/alerts/runbooks"
#: Nothing is published while the addresses are placeholders.
IS_PUBLISHED = "OWNER" not in REPOSITORY
