"""The part of JSONPath that printer columns and scale paths use: `.a.b`, `['a']`, `[0]`, `[?(@.k=="v")]`."""

import re
from typing import Any

_STEP = re.compile(
    r"""\.(?P<name>(?:[^.\[\\]|\\.)+)
      | \[\s*['"](?P<quoted>[^'"]+)['"]\s*\]
      | \[\s*(?P<index>-?\d+)\s*\]
      | \[\?\(\s*@\.(?P<key>[\w.-]+)\s*==\s*['"](?P<value>[^'"]*)['"]\s*\)\]""",
    re.VERBOSE,
)


def find_path(obj: Any, path: str) -> Any:
    """Return the first value at a path; None when there is none or the path is not understood."""
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return None
        obj = _step(obj, match)
        if obj is None:
            return None
        position = match.end()
    return obj


def _step(obj: Any, match: re.Match[str]) -> Any:
    if match["name"] or match["quoted"]:
        key = match["quoted"] or match["name"].replace("\\.", ".")
        return obj.get(key) if isinstance(obj, dict) else None
    if not isinstance(obj, list):
        return None
    if match["index"]:
        index = int(match["index"])
        return obj[index] if -len(obj) <= index < len(obj) else None
    return next((one for one in obj if isinstance(one, dict) and str(one.get(match["key"])) == match["value"]), None)
