"""The syntax of CEL, as far as the rules of custom resources use it: text in, tree out.

Laws:
- Every node knows where it stands, so that whoever refuses it can point there.
- What is outside of the subset is refused here, in words: maps, messages, bytes, unsigned numbers, raw strings.
- Length and nesting are bounded.

Source: the language definition of the Common Expression Language (cel-spec), its operators' precedence and macros.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

RULE_LENGTH_MAX: Final = 8192
DEPTH_MAX: Final = 32
"""Parentheses, brackets and signs within each other."""
LINKS_MAX: Final = 128
"""Operators and fields in one rule, which may all hang on each other."""
RULES_CACHED: Final = 1024
MACROS: Final = frozenset({"all", "exists", "exists_one"})

Constant = bool | int | float | str | None


class CelError(ValueError):
    """A rule that is not taken: why, and the offset in its text."""

    def __init__(self, why: str, at: int) -> None:
        super().__init__(why)
        self.why = why
        self.at = at

    def pointed(self, text: str) -> str:
        """Return the error as the API server shows it, with the line and an arrow."""
        before = text[: self.at]
        line, column = before.count("\n"), self.at - (before.rfind("\n") + 1)
        shown = (text.splitlines() or [""])[min(line, text.count("\n"))] if text else ""
        return f"ERROR: <input>:{line + 1}:{column + 1}: {self.why}\n | {shown}\n | {'.' * column}^"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: Constant
    at: int


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or the name of a type."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Select:
    """A field of a value; `test`: whether it is there, as the macro has() asks."""

    operand: "Node"
    field: str
    at: int
    test: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, a function, or a method with its target as the first argument."""

    name: str
    args: tuple["Node", ...]
    at: int
    method: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """A list that is written out."""

    items: tuple["Node", ...]
    at: int


@dataclass(frozen=True, slots=True)
class Fold:
    """all, exists or exists_one: `body` is asked of each item (of a map: of each key) under the name `variable`."""

    macro: str
    over: "Node"
    variable: str
    body: "Node"
    at: int


Node = Literal | Name | Select | Call | Listing | Fold

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n\f]+|//[^\n]*)
      | (?P<float>\d+\.\d+([eE][+-]?\d+)?|\d+[eE][+-]?\d+)
      | (?P<int>0x[0-9a-fA-F]+|\d+)(?![uU\w])
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)(?!["'])
      | (?P<operator>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]])""",
    re.VERBOSE,
)
_CONSTANTS: Final[dict[str, Constant]] = {"true": True, "false": False, "null": None}
_LEVELS: Final = (("||",), ("&&",), ("<", "<=", ">", ">=", "==", "!=", "in"), ("+", "-"), ("*", "/", "%"))
"""Operators of two sides, from the loosest to the tightest."""
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


@lru_cache(maxsize=RULES_CACHED)
def parse(text: str) -> Node:
    """Return the tree of a rule. Raises CelError."""
    if len(text) > RULE_LENGTH_MAX:
        raise CelError(f"expression is longer than {RULE_LENGTH_MAX} characters", 0)
    parser = _Parser(_tokens(text))
    tree = parser.expression()
    if parser.token.kind != "end":
        raise parser.surprise()
    return tree


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise CelError(f"Syntax error: {text[at]!r} is not understood here", at)
        if match.lastgroup != "space":
            tokens.append(_Token(match.lastgroup or "", match[0], at))
        at = match.end()
    tokens.append(_Token("end", "<EOF>", at))
    return tokens


class _Parser:
    """Recursive descent over the tokens; one method for each kind of phrase."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0
        self._links = 0

    @property
    def token(self) -> _Token:
        return self._tokens[self._position]

    def surprise(self) -> CelError:
        return CelError(f"Syntax error: mismatched input '{self.token.text}'", self.token.at)

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise CelError(f"expression is nested deeper than {DEPTH_MAX}", self.token.at)
        condition = self._binary(0)
        if self.token.text == "?" and self.token.kind == "operator":
            at = self._linked().at
            yes = self._binary(0)
            self._expect(":")
            condition = Call("_?_:_", (condition, yes, self.expression()), at)
        self._depth -= 1
        return condition

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self.token.kind in {"operator", "name"} and self.token.text in _LEVELS[level]:
            operator = self._linked()
            name = "@in" if operator.text == "in" else f"_{operator.text}_"
            left = Call(name, (left, self._binary(level + 1)), operator.at)
        return left

    def _unary(self) -> Node:
        if self.token.kind == "operator" and self.token.text in {"!", "-"}:
            operator = self._take()
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise CelError(f"expression is nested deeper than {DEPTH_MAX}", operator.at)
            operand = self._unary()
            self._depth -= 1
            return Call(f"{operator.text}_", (operand,), operator.at)
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        while self.token.kind == "operator" and self.token.text in {".", "["}:
            link = self._linked()
            at = link.at
            if link.text == "[":
                node = Call("_[_]", (node, self.expression()), at)
                self._expect("]")
                continue
            name = self._take_kind("name").text
            opening = self.token
            if opening.kind == "operator" and opening.text == "(":
                args = self._arguments()
                node = _macro(name, node, args, opening.at) or Call(name, (node, *args), opening.at, method=True)
            else:
                node = Select(node, name, at)
        return node

    def _primary(self) -> Node:
        token = self.token
        match token.kind:
            case "int":
                return Literal(int(self._take().text, 0 if token.text.startswith("0x") else 10), token.at)
            case "float":
                return Literal(float(self._take().text), token.at)
            case "string":
                return Literal(_unquoted(self._take()), token.at)
            case "name":
                return self._named()
            case "operator" if token.text == "(":
                self._take()
                inner = self.expression()
                self._expect(")")
                return inner
            case "operator" if token.text == "[":
                return Listing(self._arguments("[", "]"), token.at)
            case _:
                raise self.surprise()

    def _named(self) -> Node:
        token = self._take()
        if token.text in _CONSTANTS:
            return Literal(_CONSTANTS[token.text], token.at)
        opening = self.token
        if not (opening.kind == "operator" and opening.text == "("):
            return Name(token.text, token.at)
        args = self._arguments()
        if token.text != "has":
            return Call(token.text, args, opening.at)
        if len(args) != 1 or not isinstance(args[0], Select):
            raise CelError("invalid argument to has() macro", opening.at)
        return Select(args[0].operand, args[0].field, opening.at, test=True)

    def _arguments(self, opening: str = "(", closing: str = ")") -> tuple[Node, ...]:
        self._expect(opening)
        args: list[Node] = []
        while not (self.token.kind == "operator" and self.token.text == closing):
            if args:
                self._expect(",")
            args.append(self.expression())
        self._expect(closing)
        return tuple(args)

    def _linked(self) -> _Token:
        """Take a token that makes the tree one higher."""
        self._links += 1
        if self._links > LINKS_MAX:
            raise CelError(f"expression has more than {LINKS_MAX} operators and fields", self.token.at)
        return self._take()

    def _take(self) -> _Token:
        token = self.token
        self._position = min(self._position + 1, len(self._tokens) - 1)
        return token

    def _take_kind(self, kind: str) -> _Token:
        if self.token.kind != kind:
            raise self.surprise()
        return self._take()

    def _expect(self, text: str) -> None:
        if self.token.kind != "operator" or self.token.text != text:
            raise self.surprise()
        self._take()


def _macro(name: str, over: Node, args: tuple[Node, ...], at: int) -> Node | None:
    if name not in MACROS or len(args) != 2:
        return None
    if not isinstance(args[0], Name):
        raise CelError("argument must be a simple name", args[0].at)
    return Fold(name, over, args[0].name, args[1], at)


def _unquoted(token: _Token) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise CelError(f"Syntax error: escape \\{match[1]} is not understood", token.at)
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", character, token.text[1:-1])
