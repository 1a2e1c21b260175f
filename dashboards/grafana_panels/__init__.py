"""What the dashboards are built from: grafanalib's classes, brought up to what Grafana
10.4 to 13 reads.

What grafanalib writes and Grafana no longer reads is left out, and what it cannot say
is added, in one place each:

- `dashboard.py`: `__inputs` and `__requires`, panels within folded rows, no nulls.
- `panel.py`: options of each type of panel; grafanalib's are in part those of removed
  Angular panels. Queries of Grafana's Prometheus data source, which grafanalib mixes
  with Graphite's.
- `field.py`, `variables.py`, `annotations.py`, `links.py`: Grafana's JSON itself;
  grafanalib lacks overrides, ad hoc filters and links with variables.
"""
