"""Reading a Dockerfile: what is expanded with what, and what is refused rather than passed over."""

import pytest

from tools.image.dockerfile import Copy, DockerfileError, Run, parse

TWO_STAGES = """\
# A comment.
ARG BASE=python:3.13
FROM --platform=${BUILDPLATFORM} ${BASE} AS build
ARG TARGETARCH
ENV WHERE=/opt
WORKDIR /src
COPY one two ./
RUN echo "${TARGETARCH}" \\
# between the lines of one command
 && echo $HOME
FROM scratch
ARG BASE
ARG VERSION=1
LABEL version="${VERSION}" base="$BASE"
COPY --from=build /opt /opt
USER 65532:65532
ENTRYPOINT ["/program", "argument"]
"""
GIVEN = {"BUILDPLATFORM": "linux/amd64", "TARGETARCH": "arm64"}


def test_stages_hold_what_their_instructions_say() -> None:
    build, runtime = parse(TWO_STAGES, GIVEN)
    assert (build.image, build.platform, build.name) == ("python:3.13", "linux/amd64", "build")
    assert build.steps[0] == Copy(("one", "two"), "/src/./", None)
    assert runtime.steps == [Copy(("/opt",), "/opt", "build")]
    assert runtime.labels == {"version": "1", "base": "python:3.13"}
    assert (runtime.user, runtime.entrypoint) == ("65532:65532", ("/program", "argument"))


def test_a_command_is_left_to_the_shell_with_the_variables_of_its_stage() -> None:
    run = parse(TWO_STAGES, GIVEN)[0].steps[1]
    assert isinstance(run, Run)
    assert run.command == 'echo "${TARGETARCH}"  && echo $HOME'
    assert run.environment == {"TARGETARCH": "arm64", "WHERE": "/opt"}
    assert run.directory == "/src"


@pytest.mark.parametrize(
    ("default", "given", "expected"),
    [
        ("", {}, "outer"),
        ("=inner", {}, "inner"),
        ("=inner", {"NAME": "given"}, "given"),
        ("", {"NAME": "given"}, "given"),
    ],
)
def test_a_given_argument_wins_over_a_stages_default_and_that_over_the_one_before_all_stages(
    default: str, given: dict[str, str], expected: str
) -> None:
    (stage,) = parse(f"ARG NAME=outer\nFROM image\nARG NAME{default}\nUSER $NAME\n", given)
    assert stage.user == expected


def test_an_argument_does_not_reach_a_stage_that_does_not_ask_for_it() -> None:
    with pytest.raises(DockerfileError, match="line 3: NAME has no value"):
        parse("ARG NAME=outer\nFROM image\nUSER $NAME\n", {})


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("RUN true", "line 1: RUN stands before the first FROM"),
        ("FROM image\nADD https://example.org /file", "line 2: ADD is not known"),
        ("FROM image\nRUN --mount=type=cache,target=/root true", "line 2: the flag --mount is not known"),
        ("FROM image\nRUN cat <<END\nEND", "line 2: a here-document is not known"),
        ("FROM image\nUSER ${NAME:-root}", "line 2: only .* are known"),
        ("FROM image\nENTRYPOINT program", "line 2: only the form"),
        ("FROM image\nWORKDIR src", "line 2: a directory is named from / on"),
        ("FROM image\nENV NAME value", "line 2: only NAME=VALUE is known"),
        ("FROM image as one more", "line 1: FROM takes"),
        ("FROM image\nRUN true \\", "line 2: the last line is continued by nothing"),
    ],
)
def test_what_is_not_known_is_refused_with_its_line(text: str, refusal: str) -> None:
    with pytest.raises(DockerfileError, match=refusal):
        parse(text, {})
