r"""Regular expressions as Go writes them, for Python's engine.

Two differences matter in schemas: `$` is the end of the text and not also the place before a last line break, and
`\d` and `\w` mean ASCII alone. What Go cannot express (look-around, references back) is no pattern there either.
"""

import re
from functools import lru_cache
from typing import Final

PATTERNS_CACHED: Final = 1024
_FOREIGN: Final = re.compile(r"\(\?(?:[=!>(#]|<[=!]|P=)|\\[1-9]|\\Z")
_PART: Final = re.compile(r"\\z|\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|\$", re.DOTALL)


@lru_cache(maxsize=PATTERNS_CACHED)
def go_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern, to be searched for. Raises re.error for what is none in Go."""
    if _FOREIGN.search(text):
        raise re.error("is not a pattern of RE2", text)
    return re.compile(_PART.sub(lambda part: r"\Z" if part[0] in {"$", r"\z"} else part[0], text), re.ASCII)
