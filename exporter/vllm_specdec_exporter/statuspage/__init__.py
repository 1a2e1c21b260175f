"""The status page: the latest result as one HTML document, for those who have only `kubectl port-forward`.

`page` puts it together, `overview` sets several engines side by side, `lead` holds the answer per engine and
`sections` the numbers behind it; `payoff`, `advice` and `windows` are parts of these. `view` has what all of
them are drawn from. `requests` and `request_panels` show what is known of single requests. Elements and
number formats are in `markup` of the package above.
"""

from .page import CONTENT_SECURITY_POLICY, parse_refresh, render

__all__ = ["CONTENT_SECURITY_POLICY", "parse_refresh", "render"]
