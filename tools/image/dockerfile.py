"""Read a Dockerfile into what its stages do.

Laws:
- Strict: an instruction, a flag or a form that stands in no rule here is refused with its line, never passed over.
- Everything is expanded, as Docker does it: `$NAME`, `${NAME}` in all instructions but RUN, where the shell has them.
- A value of an ARG comes from the caller, else from its default, else, within a stage, from before the first FROM.

Source: Dockerfile reference, BuildKit's handling of ARG.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

PLATFORM_ARGUMENTS: Final = ("BUILDARCH", "BUILDPLATFORM", "TARGETARCH", "TARGETPLATFORM")
"""What BuildKit sets by itself, but only where the ARG has no default of its own."""

_VARIABLE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)\}|(.?))")


class DockerfileError(Exception):
    """The Dockerfile cannot be read; the text names the line."""


@dataclass(frozen=True, slots=True)
class Run:
    """A command for the shell, with the variables and the directory that it sees."""

    command: str
    environment: Mapping[str, str]
    directory: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Files from the build's context, or from the stage of that name, to a path in the image."""

    sources: tuple[str, ...]
    target: str
    stage: str | None


Step = Run | Copy


@dataclass(slots=True)
class Stage:
    """One stage: what it starts from, what it does in order, and how its image starts."""

    image: str
    platform: str | None
    name: str | None
    arguments: dict[str, str | None] = field(default_factory=dict)
    """The defaults of its ARGs as they are written; None where there is none."""
    values: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    steps: list[Step] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        """What its instructions see; ENV wins over ARG."""
        return {**self.values, **self.environment}


def parse(text: str, given: Mapping[str, str]) -> list[Stage]:
    """Return the stages; `given` are the build arguments. Raises DockerfileError."""
    before: dict[str, str] = {name: given[name] for name in PLATFORM_ARGUMENTS if name in given}
    stages: list[Stage] = []
    for number, word, rest in _instructions(text):
        try:
            if word == "FROM":
                stages.append(_stage(_expand(rest, before)))
            elif stages:
                _apply(stages[-1], word, rest, given, before)
            else:
                before |= _before(word, rest, given, before)
        except (DockerfileError, ValueError) as error:
            raise DockerfileError(f"line {number}: {error}") from error
    return stages


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, word in capitals and the rest; continued lines are joined, comments between them left out."""
    parts: list[str] = []
    begun = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        begun = begun if parts else number
        continued = line.rstrip().endswith("\\")
        parts.append(line.rstrip()[:-1] if continued else line)
        if not continued:
            word, _, rest = "".join(parts).strip().partition(" ")
            yield begun, word.upper(), rest.strip()
            parts = []
    if parts:
        raise DockerfileError(f"line {begun}: the last line is continued by nothing")


def _expand(text: str, values: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is None:
            raise DockerfileError(f"only $NAME and ${{NAME}} are known, not {match[0]}")
        if name not in values:
            raise DockerfileError(f"{name} has no value")
        return values[name]

    return _VARIABLE.sub(value, text)


def _argument(rest: str) -> tuple[str, str | None]:
    name, equals, default = rest.partition("=")
    if not re.fullmatch(r"\w+", name):
        raise DockerfileError(f"one ARG is one name, not {rest!r}")
    return name, default if equals else None


def _before(word: str, rest: str, given: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return what an ARG that all stages may take over is worth."""
    if word != "ARG":
        raise DockerfileError(f"{word} stands before the first FROM")
    name, default = _argument(rest)
    return {name: given.get(name, _expand(default or "", before))}


def _flags(rest: str, *known: str) -> tuple[dict[str, str], str]:
    """Split `--flag=value ...` from what follows it."""
    flags: dict[str, str] = {}
    while rest.startswith("--"):
        flag, _, rest = rest.partition(" ")
        name, _, value = flag[2:].partition("=")
        if name not in known:
            raise DockerfileError(f"the flag --{name} is not known")
        flags[name] = value
        rest = rest.lstrip()
    return flags, rest


def _stage(rest: str) -> Stage:
    flags, rest = _flags(rest, "platform")
    match rest.split():
        case [image]:
            name = None
        case [image, word, name] if word.upper() == "AS":
            pass
        case _:
            raise DockerfileError(f"FROM takes IMAGE or IMAGE AS NAME, not {rest!r}")
    return Stage(image, flags.get("platform"), name)


def _pairs(rest: str, variables: Mapping[str, str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in shlex.split(rest)]
    if not all(equals for _, equals, _ in pairs):
        raise DockerfileError("only NAME=VALUE is known")
    return {name: _expand(value, variables) for name, _, value in pairs}


def _apply(stage: Stage, word: str, rest: str, given: Mapping[str, str], before: Mapping[str, str]) -> None:
    variables = stage.variables
    match word:
        case "ARG":
            name, default = _argument(rest)
            stage.arguments[name] = default
            outside = {**before, **given} if default is None else {name: _expand(default, variables), **given}
            if name in outside:
                stage.values[name] = outside[name]
        case "ENV":
            stage.environment |= _pairs(rest, variables)
        case "LABEL":
            stage.labels |= _pairs(rest, variables)
        case "WORKDIR":
            stage.directory = _absolute(_expand(rest, variables))
        case "USER":
            stage.user = _expand(rest, variables)
        case "ENTRYPOINT":
            stage.entrypoint = _words(rest)
        case "COPY":
            flags, paths = _flags(rest, "from")
            *sources, target = _expand(paths, variables).split()
            target = target if target.startswith("/") else f"{stage.directory.rstrip('/')}/{target}"
            stage.steps.append(Copy(tuple(sources), target, flags.get("from")))
        case "RUN":
            _, command = _flags(rest)
            if "<<" in command:
                raise DockerfileError("a here-document is not known")
            stage.steps.append(Run(command, variables, stage.directory))
        case _:
            raise DockerfileError(f"{word} is not known")


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise DockerfileError(f"a directory is named from / on, not {path!r}")
    return path


def _words(rest: str) -> tuple[str, ...]:
    """Read the form without a shell: a JSON list of texts."""
    words = json.loads(rest) if rest.startswith("[") else None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise DockerfileError('only the form ["program", "argument"] is known: there is no shell')
    return tuple(words)
