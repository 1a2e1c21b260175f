"""The Helm chart's values: declared once, and from there values.yaml, its schema and the README."""
