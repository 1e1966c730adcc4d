"""Decoding errors as sentences: the field, what it must be, and what it is."""

from typing import Any

import msgspec
import pytest

from aischeduler.kube.decode.api_types import NodeDocument, PodDocument, TolerationPart
from aischeduler.kube.decode.job_documents import JobDocument
from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.http.errors import RefusedError, is_answer
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.user_text import LINE_LENGTH_MAX


def problem(body: bytes, kind: Any, path: str = "") -> str:
    with pytest.raises(UNREADABLE) as caught:
        msgspec.json.decode(body, type=kind)
    return decode_problem(caught.value, path)


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        (b'{"spec": {"containers": 5}}', PodDocument, "spec.containers: must be a list, not a whole number"),
        (b'{"spec": null}', PodDocument, "spec: must be a mapping, not empty"),
        (b"[]", PodDocument, "must be a mapping, not a list"),
        (b"{}", PodDocument, "metadata: is missing"),
        (b'{"spec": {"priority": 1.5}}', PodDocument, "spec.priority: must be a whole number, not a fraction"),
        (b'{"spec": {"priority": true}}', PodDocument, "spec.priority: must be a whole number, not true or false"),
        (
            b'{"metadata": {"labels": {"a": 1}}}',
            NodeDocument,
            "metadata.labels[...]: must be a string, not a whole number",
        ),
        (
            b'{"metadata": {"creationTimestamp": "today"}}',
            JobDocument,
            "metadata.creationTimestamp: must be a time such as 2026-01-02T03:04:05Z",
        ),
        (b'{"spec": ' + b"[" * 10_000, dict[str, Any], "is nested too deeply"),
        (b'{"a\xff": "b"}', dict[str, str], "is not UTF-8"),
        (b'{"a": ', dict[str, str], "Input data was truncated"),
    ],
)
def test_sentence_names_the_field_and_what_it_must_be(body: bytes, kind: Any, sentence: str) -> None:
    assert problem(body, kind) == sentence


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        (b"5", list[TolerationPart], "spec.tolerations: must be a list, not a whole number"),
        (b'[{"key": 5}]', list[TolerationPart], "spec.tolerations[0].key: must be a string, not a whole number"),
        (
            b'{"a": {}}',
            dict[str, int | str],
            "spec.tolerations[...]: must be a whole number or a string, not a mapping",
        ),
    ],
)
def test_path_of_the_decoded_part_comes_first(body: bytes, kind: Any, sentence: str) -> None:
    assert problem(body, kind, "spec.tolerations") == sentence


def test_other_errors_are_one_short_line() -> None:
    assert decode_problem(ValueError("a\n\x1b[1m" + "x" * 1000)) == "a [1m" + "x" * (LINE_LENGTH_MAX - 5)


def test_each_refusal_of_a_read_of_one_object_is_an_answer_but_those_that_time_or_a_right_changes() -> None:
    outages = [status for status in range(400, 600) if not is_answer(status)]
    assert outages == [401, 403, 408, 409, 410, 429, *range(500, 600)]


@pytest.mark.parametrize(
    ("status", "reason", "gone"),
    [
        (404, "NotFound", True),
        (404, "Unknown", False),
        (400, "BadRequest", True),
        (422, "Invalid", True),
        (403, "Forbidden", False),
        (429, "TooManyRequests", False),
        (500, "InternalError", False),
    ],
)
def test_refusal_says_whether_the_object_exists(status: int, reason: str, gone: bool) -> None:
    assert RefusedError(status, reason, "no").no_such_object is gone
