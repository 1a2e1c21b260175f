"""The process: its threads, signals and log."""
