"""Colours: the palette of Okabe and Ito, which people with any kind of colour blindness
can tell apart.

A colour says how something is judged only together with a word or a symbol; red and
green never stand for bad and good.
"""

BLUE = "#0072B2"
SKY = "#56B4E9"
ORANGE = "#E69F00"
VERMILION = "#D55E00"
GREY = "#8C8C8C"

#: The same for surfaces with text on them, light enough or dark enough for it to be
#: read: lines would be too pale in some of these.
AMBER = "#FFB61A"
PALE_SKY = "#88CCEE"
PLUM = "#AA3377"
COAL = "#4A4A4A"
INDIGO = "#332288"

#: What has no judgement.
NEUTRAL = GREY

#: Draft positions, near to far: one hue from dark to light, so that the order can be
#: seen. As dark as the dark theme bears, as light as the light one; positions farther
#: out share a grey.
POSITIONS = ("#2171B5", "#4292C6", "#6BAED6", "#9ECAE1", "#C6DBEF")

#: Buckets of the temperature, from none to hot, so that the order can be seen; greys
#: are what was not asked for.
TEMPERATURES = {
    "unset": GREY,
    "0": INDIGO,
    "0-0.5": BLUE,
    "0.5-0.7": SKY,
    "0.7-1": AMBER,
    "1+": PLUM,
}

#: Percentiles of a latency.
PERCENTILES = {"P50": SKY, "P95": BLUE, "P99": ORANGE}
