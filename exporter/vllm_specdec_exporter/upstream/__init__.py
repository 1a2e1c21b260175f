"""Reaching a server: discovery, connections and HTTP."""
