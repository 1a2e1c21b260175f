"""Settings: options from flags, environment and YAML, their values, and the
thresholds.
"""
