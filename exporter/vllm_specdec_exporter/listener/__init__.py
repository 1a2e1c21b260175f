"""The listening side: sockets, limits, TLS and passwords."""
