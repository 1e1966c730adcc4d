r"""Regular expressions as Go writes them, for Python's engine.

Three differences matter in schemas: `$` is the end of the text and not also the place before a last line break, `\d`
and `\w` mean ASCII alone, and in a class nothing but `-`, `^` and `\` is special. What Go cannot express (look-around,
references back) is no pattern here either; named classes such as `[:alpha:]` are not understood.
"""

import re
from functools import lru_cache
from typing import Final

PATTERNS_CACHED: Final = 1024
_PART: Final = re.compile(
    r"""\\.                                        # an escape
      | \[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]      # a class
      | \(\?(?:[=!>(\#]|<[=!]|P=)                 # what is foreign to Go
      | \$""",
    re.DOTALL | re.VERBOSE,
)
_IN_CLASS: Final = re.compile(r"\\.|[\[&~|]", re.DOTALL)


@lru_cache(maxsize=PATTERNS_CACHED)
def go_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern, to be searched for. Raises re.error for what is none in Go."""
    return re.compile(_PART.sub(_translated, text), re.ASCII)


def _translated(part: re.Match[str]) -> str:
    text = part[0]
    if text in {"$", r"\z"}:
        return r"\Z"
    if text.startswith("(") or text == r"\Z" or (text[0] == "\\" and text[1] in "123456789"):
        raise re.error("is not a pattern of RE2", text)
    if not text.startswith("["):
        return text
    if "[:" in text:
        raise re.error("has a named class", text)
    return "[" + _IN_CLASS.sub(lambda one: one[0] if one[0].startswith("\\") else "\\" + one[0], text[1:])
