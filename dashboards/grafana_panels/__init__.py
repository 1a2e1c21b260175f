"""What the dashboards are built from: grafanalib's classes, brought up to what Grafana 10.4 to 13 reads."""
