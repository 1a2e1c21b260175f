"""The web configuration: TLS, basic authentication and response headers of the exporter's own port.

The file has the format that Prometheus' own exporters share. It is imported only where such a file is given.
"""
