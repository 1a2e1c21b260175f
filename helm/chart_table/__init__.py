"""The Helm chart's values, read from values.yaml, and from there its schema and the
README's table.
"""
