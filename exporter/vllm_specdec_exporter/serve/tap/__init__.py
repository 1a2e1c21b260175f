"""The tap: a relay in front of vLLM's API that passes every byte on unchanged and observes the traffic.

One client connection maps to one server connection, so keep-alive, WebSockets, trailers, half-closed and
broken connections behave as without the tap. Bytes are passed on first and parsed after. If parsing fails,
observation ends and the connection continues.
"""
