"""The tap: a relay before vLLM's API that passes every byte on as it came, and looks at what passes.

One connection of a client is one connection to the server, so keep-alive, WebSockets, trailers, half-closed
connections and broken ones are theirs, and nothing has to be translated. Bytes are passed on first and looked
at after; whatever goes wrong with the looking ends the looking, never the connection.

    relay       the two ends of a connection
    side        what both have in common
    observer    what passes, as requests and answers
    messages    hands on to it what the parsers tell
    asking      asks streams for their usage (on request only)
    question    which are asked, and how
    remover     takes the extra event that this brings out again
    heads       reads heads for these three
    chunked     finds the end of a body in chunks for them
    tap         the listener, who is connected, and the end of it all
    service     its sockets and certificates, as a part of the process
"""
