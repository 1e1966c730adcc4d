"""Amounts as texts that Kubernetes reads, and as texts for people."""

from typing import Final

from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY

_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
EXACT_LENGTH_MAX: Final = 8
"""A longer text is rounded for people."""


def quantity(resource: str, amount: int) -> str:
    """Return the exact quantity: CPU in cores or milli, bytes with the largest suffix that divides."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if not is_bytes(resource):
        return str(amount)
    power = 0
    while amount and amount % 1024 == 0 and power + 1 < len(_SUFFIXES):
        amount, power = amount // 1024, power + 1
    return f"{amount}{_SUFFIXES[power]}"


def readable(resource: str, amount: int) -> str:
    """Return the quantity for people: exact where that is short, else rounded to a tenth of a suffix."""
    exact = quantity(resource, amount)
    if len(exact) <= EXACT_LENGTH_MAX or not is_bytes(resource):
        return exact
    power = min(max(0, amount.bit_length() - 1) // 10, len(_SUFFIXES) - 1)
    return f"{amount / 1024**power:.1f}{_SUFFIXES[power]}"


def is_bytes(resource: str) -> bool:
    """Return whether the resource is counted in bytes."""
    return resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-")
