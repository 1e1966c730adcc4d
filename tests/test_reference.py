"""The pages of docs/reference are what `make reference` writes, and the examples of commands are commands."""

from pathlib import Path

import pytest

from tools import docs


@pytest.mark.parametrize(("path", "text"), docs.written().items(), ids=lambda one: getattr(one, "name", ""))
def test_page_is_what_the_command_writes(path: Path, text: str) -> None:
    assert path.read_text() == text, "run `make reference`"


def test_reference_has_no_other_page() -> None:
    assert set(docs.TARGET.iterdir()) == set(docs.written())


def test_parser_accepts_every_example_of_a_command() -> None:
    docs.check_examples()


def test_meaning_of_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cli.yaml: does not exist: \['rum'\]; has no meaning: \['run'\]"):
        docs.same_names("cli", ["rum"], ["run"])
