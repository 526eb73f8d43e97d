"""How quantities are written in reports and on screens. Pure."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """Return a length of time as a person says it: `12.0 s`, `2 min 05 s`, `3 h 20 min`; `-` for None."""
    if seconds is None:
        return "-"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    whole = round(seconds / 60)
    return f"{whole // 60} h {whole % 60:02d} min"


def percent(part: float | None, digits: int = 0) -> str:
    """Return a part of 1 as a percentage; `-` for None."""
    return "-" if part is None else f"{100 * part:.{digits}f} %"


def count(number: int | None, noun: str = "") -> str:
    """Return a number with thousands apart, and its noun in the right form; `-` for None."""
    if number is None:
        return "-"
    ending = "" if number == 1 or not noun else "s"
    return f"{number:,} {noun}{ending}".rstrip()


def rate(per_second: float | None) -> str:
    """Return a rate with three digits: `12.3k`, `870`, `0.25`; `-` for None."""
    if per_second is None:
        return "-"
    for limit, divisor, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if per_second >= limit:
            return f"{per_second / divisor:.3g}{suffix}"
    return f"{per_second:,.0f}" if per_second >= 1000 else f"{per_second:.3g}"


def size(number_of_bytes: float) -> str:
    """Return a size with three digits: `870 B`, `12.3 kB`, `1.25 GB`."""
    for limit, suffix in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number_of_bytes >= 0.9995 * limit:
            return f"{number_of_bytes / limit:.3g} {suffix}"
    return f"{number_of_bytes:.0f} B"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with so many decimals; `-` for None."""
    return "-" if value is None else f"{value:.{digits}f}"
