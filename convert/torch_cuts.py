"""What flags and whole numbers were cut from: near a cut, rounding decides on which side one is."""

from __future__ import annotations

from typing import Any

from .base import HALF, SIGN, WHOLE

COMPARISONS = ("gt", "ge", "lt", "le", "greater", "greater_equal", "less", "less_equal")
ROUNDINGS = {"round": HALF, "floor": WHOLE, "ceil": WHOLE, "trunc": WHOLE}
CASTS = ("to", "type", "type_as", "byte", "char", "short", "int", "long")


class Cuts:
    """Remembers the calls that turn numbers into flags or whole numbers."""

    def __init__(self) -> None:
        self._flags: list[tuple[Any, Any, Any]] = []
        self._rounded: list[tuple[Any, Any, int]] = []
        self._casts: list[tuple[Any, Any]] = []

    def note(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """Remember a call, if it is one of those."""
        if not args or not _is_real(args[0]) or not hasattr(result, "is_floating_point"):
            return
        if name in COMPARISONS:
            self._flags.append((result, args[0], kwargs.get("other", args[-1])))
        elif name in ROUNDINGS and not kwargs:
            self._rounded.append((result, args[0], ROUNDINGS[name]))
        elif name in CASTS and not result.is_floating_point():
            self._casts.append((result, args[0]))

    def find(self, tensor: Any) -> tuple[Any, int] | None:
        """Return what a tensor was cut from, and where the cuts are."""
        for flag, ours, theirs in self._flags:
            if flag is tensor:
                return ours - theirs, SIGN
        for whole, number in self._casts:
            if whole is tensor:
                return self._before(number)
        return None

    def _before(self, number: Any) -> tuple[Any, int] | None:
        for rounded, value, cut in self._rounded:
            if rounded is number:
                return value, cut
        return number, WHOLE


def _is_real(value: Any) -> bool:
    return hasattr(value, "is_floating_point") and bool(value.is_floating_point())
