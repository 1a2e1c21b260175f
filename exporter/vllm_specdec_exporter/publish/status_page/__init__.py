"""The status page: the latest result as one HTML document, for people with only `kubectl port-forward`.

`page` puts it together. `summary` holds the answer for each engine and the overview of several, `sections`
and `advice` the numbers behind it, `view` what all of them are drawn from. `requests` and `request_panels`
show single requests. Elements and number formats are in `publish.markup`.
"""

from .page import CONTENT_SECURITY_POLICY, parse_refresh, render

__all__ = ["CONTENT_SECURITY_POLICY", "parse_refresh", "render"]
