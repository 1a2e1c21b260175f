"""Exit codes, the same for all commands: what a script learns from the end of one.

The help of each command says which of them it has, and when.
"""

FINE = 0
PROBLEM = 1  # the answer is bad, or there is none
USAGE = 2  # by argparse's convention
UNKNOWN = 3  # the answer is not known
UNREACHABLE = 4  # a server cannot be reached or understood
CANNOT_WRITE = 74  # the output: `EX_IOERR` of sysexits.h
INTERRUPTED = 130  # by SIGINT, as a shell has it
BROKEN_PIPE = 141  # by SIGPIPE, likewise
