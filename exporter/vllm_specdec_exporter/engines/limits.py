"""Limits of what is read of one response, above what any server has."""

#: Engines become label values, so they bound the cardinality; large deployments have 64
#: ranks.
MAX_ENGINES = 256
#: Positions of all engines together, 32 of each of 64: each becomes ten series. With
#: more, none is read.
MAX_ALL_POSITIONS = 2048
MAX_LABEL = 1024  # characters; model names are paths of some 100
#: Characters of labels in all series, with the two numbers below. 256 names of 100
#: characters fit in.
MAX_PUBLISHED = 8 * 1024 * 1024
SERIES_OF_ENGINE = 60
SERIES_OF_POSITION = 10
MAX_BOUNDS = 256  # buckets of a latency histogram; servers have some 20
MAX_DEFECTS = 10  # reported defects per engine: enough to see what is wrong
#: A million tokens a second for 30,000 years; squares of more may overflow.
MAX_VALUE = 1e18
MAX_QUOTED = 400  # characters of a series' labels in an error: four long ones
