"""Kubernetes quantities: parsed exactly, and written for programs and for people.

Invariants:
- A quantity is parsed without floats, as an integer count of nano-units, rounded up as the API server does.
- A text that the API server rejects is rejected here, with the text in the message.

Source: k8s.io/apimachinery, resource.Quantity (syntax and canonical form).
"""

import re
from typing import Final

from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, GPU_SHARE, HUGE_PAGES, MEMORY
from aischeduler.model.user_text import quoted

NANO: Final = 10**9
EXPONENT_MAX: Final = 30
"""No real amount has a larger power of ten, and a short text with one would take much memory."""
READABLE_LENGTH_MAX: Final = 8
"""A longer quantity is rounded for people."""

_SYNTAX = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:(Ki|Mi|Gi|Ti|Pi|Ei)|(n|u|m|k|M|G|T|P|E)|[eE]([+-]?[0-9]{1,9}))?", re.ASCII
)
_DIGITS_MAX = 64
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


class QuantityError(ValueError):
    """A text that is no quantity; the message quotes it."""


def parse_nano(text: str) -> int:
    """Return the quantity in nano-units, rounded up to whole ones (away from zero).

    Raises QuantityError for a text that the API server rejects, and for exponents beyond 30.
    """
    found = _SYNTAX.fullmatch(text) if len(text) <= _DIGITS_MAX else None
    if found is None:
        raise QuantityError(f"{quoted(text)} is not a quantity such as 1, 500m, 1.5 or 2Gi")
    sign, number, binary, decimal, exponent = found.groups()
    whole, _, fraction = number.partition(".")
    power = int(exponent) if exponent else _DECIMAL[decimal or ""]
    if not -EXPONENT_MAX <= power <= EXPONENT_MAX:
        raise QuantityError(f"{quoted(text)} has an exponent outside -{EXPONENT_MAX} to {EXPONENT_MAX}")
    numerator = int(whole + fraction or "0") * NANO * _BINARY.get(binary or "", 1)
    power -= len(fraction)
    scale = int(10 ** abs(power))
    nano = numerator * scale if power >= 0 else -(-numerator // scale)
    return -nano if sign == "-" else nano


def parse_milli(text: str) -> int:
    """Return the quantity in thousandths, rounded up, as schedulers count CPU."""
    return _ceiling(parse_nano(text), 10**6)


def parse_units(text: str) -> int:
    """Return the quantity in whole units, rounded up, as schedulers count bytes and devices."""
    return _ceiling(parse_nano(text), NANO)


def canonical(text: str) -> str:
    """Return the form that the API server stores: no fraction, the largest suffix that divides.

    A binary quantity below 1024, or with a fraction of a unit, gets a decimal suffix. A text whose number and suffix
    stay the same keeps its form (+1, 007, 1E3).
    """
    nano = parse_nano(text)
    form = _canonical(text, nano)
    return text if nano and _number_and_suffix(text) == _number_and_suffix(form) else form


def _canonical(text: str, nano: int) -> str:
    sign, amount = ("-", -nano) if nano < 0 else ("", nano)
    if text.endswith("i") and amount % NANO == 0 and (amount == 0 or amount >= 1024 * NANO):
        units = amount // NANO
        suffix, scale = _largest(units, _BINARY)
        return f"{sign}{units // scale}{suffix}"
    if amount == 0:
        return "0"
    power = -9
    while amount % 1000 == 0:
        amount, power = amount // 1000, power + 3
    return f"{sign}{amount}{_decimal_suffix(text, power)}" if power <= 18 else f"{sign}{amount * 10 ** (power - 18)}E"


def quantity_text(resource: str, amount: int) -> str:
    """Return the exact quantity of an amount: bytes with the largest suffix that divides.

    It is in milli for CPU, and in hundredths for GPU_SHARE.
    """
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if resource == GPU_SHARE:
        return trimmed(f"{amount // 100}.{amount % 100:02}")
    if not _is_bytes(resource):
        return str(amount)
    suffix, scale = _largest(amount, _BINARY)
    return f"{amount // scale}{suffix}"


def readable(resource: str, amount: int) -> str:
    """Return the quantity for people: exact where that is short, else rounded to a tenth of a suffix."""
    exact = quantity_text(resource, amount)
    if len(exact) <= READABLE_LENGTH_MAX or not _is_bytes(resource):
        return exact
    number, suffix = scaled_bytes(amount)
    return f"{number:.1f}{suffix}"


def scaled_bytes(amount: int) -> tuple[float, str]:
    """Return bytes in the largest binary unit of which there is at least one, and its suffix."""
    suffix, scale = next((unit for unit in reversed(_BINARY.items()) if unit[1] <= abs(amount)), ("", 1))
    return amount / scale, suffix


def trimmed(number: str) -> str:
    """Return a decimal number without zeros at the end of its fraction."""
    return number.rstrip("0").rstrip(".") if "." in number else number


def _number_and_suffix(text: str) -> tuple[int, str | None, str | None, int] | None:
    """Return the parts of a quantity without a fraction; None for one with a fraction."""
    found = _SYNTAX.fullmatch(text)
    if found is None or found[2].partition(".")[2]:
        return None
    return int(found[2].rstrip(".")), found[3], found[4], int(found[5] or 0)


def _is_bytes(resource: str) -> bool:
    return resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith(HUGE_PAGES)


def _largest(units: int, suffixes: dict[str, int]) -> tuple[str, int]:
    best = ("", 1)
    for suffix, scale in suffixes.items():
        if units and units % scale == 0:
            best = (suffix, scale)
    return best


def _decimal_suffix(text: str, power: int) -> str:
    if re.search(r"[eE][+-]?[0-9]+$", text):
        return f"e{power}" if power else ""
    return next(suffix for suffix, exponent in _DECIMAL.items() if exponent == power)


def _ceiling(amount: int, scale: int) -> int:
    rounded = -(-abs(amount) // scale)
    return rounded if amount >= 0 else -rounded
