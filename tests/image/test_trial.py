"""The image, carried out step by step without an engine: it builds, is small, and runs as nobody on what it copies."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.controlplane.absent import leave_out
from tools.image.rules import read_context
from tools.image.scratch import UnavailableError, require_namespaces
from tools.image.trial import BYTES_MAX, try_image

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.whole
def test_the_image_builds_for_every_architecture_and_starts_on_this_one() -> None:
    assert BYTES_MAX == 150_000_000
    with TemporaryDirectory(prefix="ai-scheduler-image-") as scratch:
        Path(scratch).chmod(0o755)  # who runs the image is not who built it
        try:
            require_namespaces()
            claims = list(try_image(read_context(ROOT), Path(scratch)))
        except UnavailableError as error:
            leave_out(str(error))
    assert [claim for claim in claims if not claim.holds] == []
    subjects = {claim.text.partition(":")[0] for claim in claims}
    assert {"amd64", "arm64", "`version` answers", "a whole cluster in memory is scheduled"} <= subjects
