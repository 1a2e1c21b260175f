"""Where seeds come from: the recorded answers and the documented examples that the
repository has anyway.
"""

import re
from pathlib import Path

#: Recorded answers.
DATA = Path(__file__).parents[1] / "data"
#: Documents that use every key; the first character of a name is the kind of
#: `fuzz.targets.documents`.
EXAMPLES = Path(__file__).parent / "examples"
#: Values of settings.
VALUES = Path(__file__).with_name("settings.yml")
#: The documentation, whose examples are seeds.
DOCS = Path(__file__).parents[2] / "docs"


def fenced(name: str, language: str) -> list[bytes]:
    """Return the examples in a language that a page of the documentation has."""
    blocks = re.findall(
        rf"^```{language}\n(.*?)^```$",
        (DOCS / name).read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    return [example.encode() for example in blocks]
