"""The rules of our image: our Dockerfile keeps them all, and a change that breaks one is found."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from tools.image.dockerfile import DockerfileError
from tools.image.rules import admitted_names, findings, read_context

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = read_context(ROOT)


def test_our_dockerfile_keeps_every_rule() -> None:
    assert findings(CONTEXT) == []


def test_the_check_can_be_run_by_hand() -> None:
    finished = subprocess.run(
        [sys.executable, ROOT / "tools/image/check.py"], capture_output=True, text=True, check=False
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


BROKEN = {
    "a tag that moves": ("python:3.13-slim-trixie", "python:latest", "neither a version nor a digest"),
    "no tag": (
        "docker.io/library/python:3.13-slim-trixie",
        "docker.io/library/python",
        "neither a version nor a digest",
    ),
    "an image with a shell": ("gcr.io/distroless/python3-debian13:nonroot", "python:3.13", "whether it has a shell"),
    "another Python to run": ("debian13", "debian12", "is '3.13', which is not the version of gcr.io"),
    "another Python to build": (
        "python:3.13-",
        "python:3.12-",
        "is '3.13', which is not the version of docker.io",
    ),
    "a platform by default": ("ARG TARGETARCH", "ARG TARGETARCH=amd64", "ARG TARGETARCH has a default"),
    "emulation": ("--platform=${BUILDPLATFORM} ", "", "would need emulation"),
    "no hashes": (
        "--require-hashes --only-binary :all: -r",
        "--only-binary :all: -r",
        "what no lock names",
    ),
    "sources are built": ("--only-binary :all: -r", "-r", "what no lock names"),
    "a wheel with its dependencies": ("--no-deps --no-index --target", "--target", "what no lock names"),
    "everything is copied": ("COPY aischeduler aischeduler", "COPY . .", "COPY .: .dockerignore does not let it in"),
    "a file that is not there": ("COPY aischeduler", "COPY scheduler", "COPY scheduler: there is no such file"),
    "admitted for nothing": ("pyproject.toml README.md LICENSE", "pyproject.toml README.md", "lets LICENSE in"),
    "root": ("USER 65532:65532", "USER 0:0", "USER is '0:0'"),
    "a user by name": ("USER 65532:65532", "USER nonroot", "USER is 'nonroot'"),
    "another user than before": ("USER 65532:65532", "USER 65532:0", "USER is '65532:0'"),
    "a command in the last stage": (
        "USER 65532",
        "RUN true\nUSER 65532",
        "no shell that could RUN true",
    ),
    "files from elsewhere": ("--from=build /opt", "--from=other /opt", "from elsewhere than the first"),
    "an entry point that needs a shell": (
        '["/usr/bin/python3", "-m", "aischeduler"]',
        "python3 -m aischeduler",
        "line ",
    ),
    "another interpreter": ('"/usr/bin/python3"', '"/usr/local/bin/python3"', "ENTRYPOINT does not start"),
    "bytecode is written": (
        "PYTHONDONTWRITEBYTECODE=1",
        "PYTHONDONTWRITEBYTECODE=0",
        "PYTHONDONTWRITEBYTECODE is not 1",
    ),
    "no label": ('org.opencontainers.image.title="ai-scheduler"', 'title="ai-scheduler"', "image.title is missing"),
    "an old version": ("ARG VERSION=", "ARG VERSION=0", "the label version says 0"),
    "a third stage": ("\nFROM ${RUNTIME_IMAGE}", "\nFROM scratch\nFROM ${RUNTIME_IMAGE}", "there are 3 stages"),
}


@pytest.mark.parametrize(("before", "after", "finding"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_found(before: str, after: str, finding: str) -> None:
    assert before in CONTEXT.dockerfile
    found = findings(dataclasses.replace(CONTEXT, dockerfile=CONTEXT.dockerfile.replace(before, after)))
    assert any(finding in one for one in found), found


@pytest.mark.parametrize(
    "text",
    ["", ".git\n", "*\n!aischeduler\n", "*\n!aischeduler\n*.md\n**/__pycache__\n"],
)
def test_only_a_list_of_what_is_let_in_is_a_dockerignore(text: str) -> None:
    with pytest.raises(DockerfileError):
        admitted_names(text)
