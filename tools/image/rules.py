"""What an image of ours has to be, asked of its Dockerfile.

Law: a finding is one sentence that says what is wrong; a Dockerfile without findings keeps every rule.
"""

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.image.dockerfile import PLATFORM_ARGUMENTS, Copy, DockerfileError, Run, Stage, parse

DISTROLESS: Final = re.compile(r"gcr\.io/distroless/python3-(debian\d+)[:@]")
PYTHON_OF_DISTROLESS: Final = {"debian12": "3.11", "debian13": "3.13"}
"""Debian's own minor version of Python, which its distroless image has."""

LABELS: Final = tuple(
    f"org.opencontainers.image.{name}"
    for name in ("title", "description", "licenses", "version", "revision", "base.name")
)

ARGUMENTS: Final = {"BUILDPLATFORM": "linux/amd64", "TARGETARCH": "amd64"}
"""What stands for BuildKit's own arguments when a Dockerfile is only read."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a build gets: the Dockerfile, the names that .dockerignore admits, and the project that they are of."""

    root: Path
    dockerfile: str
    admitted: tuple[str, ...]
    license: str
    version: str


def read_context(root: Path) -> Context:
    """Read what a build at the root of the repository gets; raises DockerfileError."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    version = re.search(
        r'^__version__ = "(.+)"$', (root / project["tool"]["hatch"]["version"]["path"]).read_text(), re.MULTILINE
    )
    if version is None:
        raise DockerfileError("the package says no version")
    return Context(
        root,
        (root / "Dockerfile").read_text(),
        admitted_names((root / ".dockerignore").read_text()),
        project["project"]["license"],
        version[1],
    )


def admitted_names(text: str) -> tuple[str, ...]:
    """Return the names that a .dockerignore admits: everything is shut out first, then names come back one by one."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    if not lines or lines[0] != "*":
        raise DockerfileError(".dockerignore does not shut out everything first")
    names = [line[1:] for line in lines if line.startswith("!")]
    if lines[1:] != [*(f"!{name}" for name in names), "**/__pycache__"]:
        raise DockerfileError(".dockerignore has more than names that come back and, last, **/__pycache__")
    return tuple(names)


def findings(context: Context) -> list[str]:
    """Return what is wrong with the Dockerfile, in the order of the rules."""
    try:
        stages = parse(context.dockerfile, ARGUMENTS)
    except DockerfileError as error:
        return [str(error)]
    if len(stages) != 2:
        return [f"there are {len(stages)} stages, not one that builds and one that runs"]
    build, runtime = stages
    return [
        *_images(build, runtime),
        *_arguments(build, runtime),
        *_installs(build),
        *_copies(build, context),
        *_runtime(build, runtime),
        *_labels(runtime, context),
    ]


def _images(build: Stage, runtime: Stage) -> Iterator[str]:
    for stage in (build, runtime):
        _, _, tag = stage.image.rpartition("/")[2].partition(":")
        if "@" not in stage.image and (not tag or tag == "latest"):
            yield f"{stage.image} has neither a version nor a digest"
    distroless = DISTROLESS.match(runtime.image)
    if distroless is None:
        yield f"{runtime.image} is not gcr.io/distroless/python3-debianN: whether it has a shell is not known"
        return
    python = build.values.get("PYTHON_VERSION", "")
    if PYTHON_OF_DISTROLESS.get(distroless[1]) != python:
        yield f"PYTHON_VERSION is {python!r}, which is not the version of {runtime.image}"
    if not re.search(rf":{re.escape(python)}\b", build.image):
        yield f"PYTHON_VERSION is {python!r}, which is not the version of {build.image}"


def _arguments(build: Stage, runtime: Stage) -> Iterator[str]:
    for stage in (build, runtime):
        for name in PLATFORM_ARGUMENTS:
            if stage.arguments.get(name) is not None:
                yield f"ARG {name} has a default, which would win over the platform that is asked for"
    if build.platform != ARGUMENTS["BUILDPLATFORM"]:
        yield "the first stage does not run on ${BUILDPLATFORM}: other architectures would need emulation"
    if "TARGETARCH" not in build.arguments:
        yield "the first stage does not ask for TARGETARCH: every platform would get the same wheels"


def commands(step: Run) -> list[list[str]]:
    """Return the words of each command of a RUN, as far as `&&`, `;` and `|` separate them."""
    lexer = shlex.shlex(step.command, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set(";&|"):
            found.append([])
        else:
            found[-1].append(word)
    return found


def _installs(build: Stage) -> Iterator[str]:
    """Whatever pip fetches is locked by hashes and comes as a wheel; whatever else it does, it fetches nothing."""
    for step in build.steps:
        if not isinstance(step, Run):
            continue
        for words in commands(step):
            if not any(word.rpartition("/")[2] in ("pip", "pip3") for word in words):
                continue
            fetches = {"-r", "--require-hashes", "--only-binary"} <= set(words) and ":all:" in words
            if not fetches and not {"--no-index", "--no-deps"} <= set(words):
                yield f"pip may fetch what no lock names: {' '.join(words)}"


def _copies(build: Stage, context: Context) -> Iterator[str]:
    copied = [source for step in build.steps if isinstance(step, Copy) for source in step.sources]
    for source in copied:
        if not (context.root / source).exists():
            yield f"COPY {source}: there is no such file"
        if source not in context.admitted:
            yield f"COPY {source}: .dockerignore does not let it in by that name"
    for name in context.admitted:
        if name not in copied:
            yield f".dockerignore lets {name} in, and nothing copies it"


def _runtime(build: Stage, runtime: Stage) -> Iterator[str]:
    for step in runtime.steps:
        if isinstance(step, Run):
            yield f"the last stage has no shell that could RUN {step.command}"
        elif step.stage is None or step.stage != build.name:
            yield f"the last stage copies {' '.join(step.sources)} from elsewhere than the first"
    match = re.fullmatch(r"(\d+):(\d+)", runtime.user)
    if match is None or int(match[1]) == 0 or int(match[2]) == 0:
        yield f"USER is {runtime.user!r}: Kubernetes asks for numbers of a user and a group, neither of them root"
    if runtime.entrypoint[:1] != ("/usr/bin/python3",):
        yield "ENTRYPOINT does not start the interpreter of distroless, /usr/bin/python3"
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONSAFEPATH"):
        if runtime.environment.get(name) != "1":
            yield f"{name} is not 1 in the last stage"


def _labels(runtime: Stage, context: Context) -> Iterator[str]:
    for name in LABELS:
        if not runtime.labels.get(name):
            yield f"the label {name} is missing or empty"
    expected = {"version": context.version, "licenses": context.license, "base.name": runtime.image}
    for short, value in expected.items():
        label = runtime.labels.get(f"org.opencontainers.image.{short}")
        if label and label != value:
            yield f"the label {short} says {label}, the project {value}"
