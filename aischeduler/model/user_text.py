"""What a user or a server wrote, for messages: suggestions for misspelt names, values in quotes, text on one line.

Invariants:
- Many wrong names cost little: a name is compared with a limited number of names, and suggestions are cached.
- Foreign text is escaped or loses its control characters, and is cut.
"""

import difflib
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Final

KNOWN_MAX: Final = 256
"""Names that a wrong name is compared with; the others are not suggested."""
NAME_LENGTH_MAX: Final = 80
"""Longest name that is compared."""
LIKENESS_MIN: Final = 0.75
"""How alike two names have to be; cpu and gpu are not alike enough."""
ANSWERS_MAX: Final = 1024
QUOTE_LENGTH_MAX: Final = 60
LINE_LENGTH_MAX: Final = 300


def nearest(name: str, known: Iterable[str], likeness: float = LIKENESS_MIN) -> str:
    """Return the known name that is most like this one, ignoring case and outer blanks, or nothing.

    A higher `likeness` suits names that have most of their letters in common, such as those of schedulers.
    """
    return _nearest(name, tuple(islice(known, KNOWN_MAX)), likeness) if len(name) <= NAME_LENGTH_MAX else ""


@lru_cache(maxsize=ANSWERS_MAX)
def _nearest(name: str, known: tuple[str, ...], likeness: float) -> str:
    plain = name.strip().casefold()
    same = [candidate for candidate in known if candidate.casefold() == plain]
    return next(iter(same or difflib.get_close_matches(name, known, n=1, cutoff=likeness)), "")


def shown(value: object) -> str:
    """Return a value for a message; a collection is not spelled out."""
    match value:
        case None:
            return "empty"
        case bool():
            return str(value).lower()
        case int() if value.bit_length() > 64:
            return "a number of more than 64 bits"
        case int() | float():
            return str(value)
        case str():
            return quoted(value)
        case []:
            return "an empty list"
        case [str() as first]:
            return f"[{quoted(first)}]"
        case list():
            return f"a list of {len(value)}"
        case dict():
            return "a mapping"
        case _:
            return f"a {type(value).__name__}"


def quoted(text: str) -> str:
    """Return a text in quotes, escaped, and cut where it is long."""
    return ascii(text if len(text) <= QUOTE_LENGTH_MAX else text[:QUOTE_LENGTH_MAX] + "...")


def one_line(text: str) -> str:
    """Return foreign text as one line of bounded length without control characters."""
    return "".join(char for char in " ".join(text.split()) if char.isprintable())[:LINE_LENGTH_MAX]
