"""Spelling suggestions for messages.

Invariant: many wrong names cost little: a name is compared with a limited number of names, and answers are cached.
"""

import difflib
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Final

KNOWN_MAX: Final = 256
"""Names that a wrong name is compared with; the others are not suggested."""
LENGTH_MAX: Final = 80
"""Longest name that is compared."""
LIKENESS_MIN: Final = 0.75
"""How alike two names have to be; cpu and gpu are not alike enough."""
ANSWERS_MAX: Final = 1024
"""Answers in the cache."""


def nearest(name: str, known: Iterable[str], likeness: float = LIKENESS_MIN) -> str:
    """Return the known name that is most like this one, ignoring case and outer blanks, or nothing.

    A higher `likeness` suits names that have most of their letters in common, such as those of schedulers.
    """
    return _nearest(name, tuple(islice(known, KNOWN_MAX)), likeness) if len(name) <= LENGTH_MAX else ""


@lru_cache(maxsize=ANSWERS_MAX)
def _nearest(name: str, known: tuple[str, ...], likeness: float) -> str:
    plain = name.strip().casefold()
    same = [one for one in known if one.casefold() == plain]
    return next(iter(same or difflib.get_close_matches(name, known, n=1, cutoff=likeness)), "")
