"""What is wrong with a document that cannot be decoded: a message of msgspec in parts, and as a sentence.

Invariant: no other module reads the text of these messages.
"""

import re
from typing import Final

from msgspec import Struct

from aischeduler.model.user_text import one_line

_MESSAGE: Final = re.compile(r"(.*?)(?: - at `(key` in `)?\$(.*)`)?", re.DOTALL)
_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING_FIELD: Final = re.compile(r"Object missing required field `(.*)`")
_WRONG_TYPE: Final = re.compile(r"Expected `([a-z| ]+)`, got `([a-z]+)`")
_TYPE_WORDS: Final = {
    "object": "a mapping",
    "array": "a list",
    "str": "a string",
    "int": "a whole number",
    "float": "a fraction",
    "bool": "true or false",
    "datetime": "a time such as 2026-01-02T03:04:05Z",
    "null": "empty",
}
"""The types of msgspec in the words of messages."""


class Complaint(Struct, frozen=True):
    """A message of msgspec in parts: the place, such as `.spec.items[0]`, and what is wrong there.

    `unknown` and `missing` are names of fields; `rule` is what a check of the struct itself says, beginning with a
    field; `problem` is the text of the message.
    """

    place: str
    problem: str
    unknown: str | None = None
    missing: str = ""
    rule: str = ""
    wrong_key: bool = False


def complaint(error: Exception) -> Complaint:
    """Return the parts of an error of msgspec."""
    text, rule = str(error), str(error.__cause__) if isinstance(error.__cause__, ValueError) else ""
    parts = _MESSAGE.fullmatch(text.removeprefix(rule))
    assert parts is not None, "the expression matches every text"
    problem, place = parts[1], parts[3] or ""
    unknown, missing = _UNKNOWN_FIELD.fullmatch(problem), _MISSING_FIELD.fullmatch(problem)
    return Complaint(
        place, problem, unknown[1] if unknown else None, missing[1] if missing else "", rule, parts[2] is not None
    )


def decode_problem(error: Exception, path: str = "") -> str:
    """Return a decoding error as a sentence for users; `path` is the path of the decoded part in its object."""
    field, sentence = decode_finding(error)
    where = f"{path}{'' if field.startswith('[') or not path or not field else '.'}{field}"
    return f"{where}: {sentence}" if where else sentence


def decode_finding(error: Exception) -> tuple[str, str]:
    """Return the path of the field that cannot be decoded, empty for the whole object, and what is wrong with it."""
    if isinstance(error, RecursionError):
        return "", "is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "", "is not UTF-8"
    found = complaint(error)
    field = one_line(found.place).removeprefix(".")
    if found.missing:
        return f"{field}.{found.missing}".removeprefix("."), "is missing"
    if "datetime" in found.problem:
        return field, f"must be {_TYPE_WORDS['datetime']}"
    if wrong := _WRONG_TYPE.fullmatch(found.problem):
        wanted = [_TYPE_WORDS.get(word, word) for word in wrong[1].split(" | ") if word != "null"]
        return field, f"must be {' or '.join(wanted)}, not {_TYPE_WORDS.get(wrong[2], wrong[2])}"
    return field, one_line(found.rule or found.problem)
