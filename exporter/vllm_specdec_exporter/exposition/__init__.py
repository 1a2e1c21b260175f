"""Exposition formats: reading Prometheus text and OpenMetrics, writing protobuf, histograms."""
