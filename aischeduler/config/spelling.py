"""The name that somebody who misspelt one probably meant, for messages.

Law: pure, and cheap for whoever writes many wrong names: few names are compared, and a question asked again is not
worked out again.
"""

import difflib
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Final

KNOWN_MAX: Final = 256
"""Names that a misspelt one is compared with; the others are not proposed."""
LENGTH_MAX: Final = 80
"""Longest name that is compared; what is longer is no slip."""
LIKENESS_MIN: Final = 0.75
"""How alike two names are at least; cpu and gpu, which are both right somewhere, are not."""
ANSWERS_MAX: Final = 1024
"""Questions whose answers are kept."""


def nearest(name: str, known: Iterable[str], likeness: float = LIKENESS_MIN) -> str:
    """Return the known name that is most like this one, whatever its case and blanks; empty where none is.

    `likeness` is higher than usual for names that have most of their letters in common, as those of schedulers.
    """
    return _nearest(name, tuple(islice(known, KNOWN_MAX)), likeness) if len(name) <= LENGTH_MAX else ""


@lru_cache(maxsize=ANSWERS_MAX)
def _nearest(name: str, known: tuple[str, ...], likeness: float) -> str:
    plain = name.strip().casefold()
    same = [one for one in known if one.casefold() == plain]
    return next(iter(same or difflib.get_close_matches(name, known, n=1, cutoff=likeness)), "")
