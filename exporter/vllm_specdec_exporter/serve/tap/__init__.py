"""The tap: a relay before vLLM's API that passes every byte on unchanged, and observes what passes.

One connection of a client is one connection to the server, so keep-alive, WebSockets, trailers, half-closed
and broken connections behave as without it. Bytes are passed on first and parsed after. Where parsing fails,
observation ends and the connection goes on.

    tap            its listener, sockets and certificates, and its shutdown
    relay          the two ends of a connection
    observer       from the bytes that pass to requests and answers
    usage_request  asks streams for their usage (with tap.ask-for-usage only)
    usage_removal  takes the extra event that this brings out of the answer
    http_framing   heads and chunked bodies, for these two
"""
