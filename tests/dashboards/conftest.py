"""The generator's package can be imported."""

import sys

from support.repository import ROOT

sys.path.append(str(ROOT / "dashboards"))
