"""The jq of the pages: what it makes of the output of a command."""

import shlex
import shutil
import subprocess

import pytest


def filtered(text: str, arguments: str) -> str:
    """Return the output of jq; a machine without it, which the product does not need, skips this example alone."""
    if shutil.which("jq") is None:
        pytest.skip("there is no jq")
    jq = ["jq", *shlex.split(arguments)]
    return subprocess.run(jq, input=text, capture_output=True, text=True, check=True).stdout
