"""The status page: the latest result as one HTML document, for those who have only `kubectl port-forward`.

`page` puts it together, `lead` holds the answer per engine, `sections` the numbers behind it, `markup` the
elements and number formats.
"""

from .page import CONTENT_SECURITY_POLICY, parse_refresh, render

__all__ = ["CONTENT_SECURITY_POLICY", "parse_refresh", "render"]
