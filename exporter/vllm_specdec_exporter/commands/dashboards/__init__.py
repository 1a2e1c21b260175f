"""Grafana: the dashboards that come with the exporter, and how they get to where they are looked at.

* `bundle`: which dashboards there are. Pure, but for reading their files.
* `files`: what is written to a folder: JSON, a provider for provisioning, ConfigMaps.
* `connection`: how to reach a Grafana.
* `client`: its HTTP API.
* `push`: from the bundle to a Grafana: what is new, changed or refused.
* `command`: `vllm-specdec-exporter dashboards`.
"""
