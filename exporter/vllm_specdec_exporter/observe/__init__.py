"""The pipeline: from one response of a server to the published result of each of its
engines.
"""
