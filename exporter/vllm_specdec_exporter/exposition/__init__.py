"""Exposition formats: a parser of Prometheus text and OpenMetrics, a protobuf encoder, histograms."""
