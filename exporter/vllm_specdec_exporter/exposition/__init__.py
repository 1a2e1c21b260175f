"""Exposition formats: a parser of Prometheus text and OpenMetrics, and histograms."""
