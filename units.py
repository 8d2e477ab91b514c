"""Sizes and times as people write them: `4GiB`, `10m`."""

from __future__ import annotations

import math

LONGEST = 366 * 86400.0
"""Seconds that any step may take at most: the system's clocks count no further than some years."""

PERIODS = {"s": 1, "m": 60, "h": 3600}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(value: str | int) -> int:
    """Return the number of bytes of `800M` or `4GiB`.

    Raises:
        ValueError: it is no size; the message is a sentence for the user.
    """
    text = str(value).strip().upper().removesuffix("IB").removesuffix("B")
    number, unit = (text[:-1], text[-1:]) if text[-1:].isalpha() else (text, "")
    try:
        size = int(float(number) * UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        size = 0
    if not 0 < size < 1 << 62:
        raise ValueError(f"{value!r} is no size; write it like 800M or 4GiB")
    return size


def parse_seconds(value: str | float) -> float:
    """Return the number of seconds of `600`, `60s`, `10m` or `1h`: above nothing, and finite.

    Raises:
        ValueError: it is no time; the message is a sentence for the user.
    """
    text = str(value).strip()
    number, unit = (text[:-1], text[-1:]) if text[-1:].isalpha() else (text, "s")
    try:
        seconds = float(number) * PERIODS[unit]
    except (KeyError, ValueError):
        seconds = math.nan
    if not 0 < seconds <= LONGEST:
        raise ValueError(f"{value!r} is no time; write it like 600, 60s or 10m")
    return seconds
