"""The Grafana dashboards of the package: listed, written to files, or saved in a Grafana."""
