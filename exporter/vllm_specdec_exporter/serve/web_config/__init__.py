"""The web configuration: TLS, basic authentication and response headers of the exporter's own port.

The file has the format of Prometheus' exporter toolkit. This package is imported only if there is a file.
"""
