#!/usr/bin/env python3
"""Check the image without an engine: read its Dockerfile, and with `--build` carry out its steps and start it.

Status 0: nothing is wrong. 1: something is, and it is said. 2: this machine cannot carry the steps out, and why.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.image.dockerfile import DockerfileError  # noqa: E402 - a script finds its neighbours only now
from tools.image.rules import Context, findings, read_context  # noqa: E402
from tools.image.scratch import UnavailableError, require_namespaces  # noqa: E402
from tools.image.steps import StepError  # noqa: E402
from tools.image.trial import NOT_TRIED, try_image  # noqa: E402


def main(arguments: Sequence[str]) -> int:
    """Say what was found; return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--build", action="store_true", help="carry out the steps, for every architecture, and start it"
    )
    asked = parser.parse_args(arguments)
    try:
        context = read_context(ROOT)
        wrong = findings(context)
        for finding in wrong:
            print(f"Dockerfile: {finding}")
        if wrong or not asked.build:
            return 1 if wrong else 0
        return _build(context)
    except (DockerfileError, StepError) as error:
        print(f"Dockerfile: {error}")
        return 1
    except UnavailableError as error:
        print(f"not tried: {error}")
        return 2


def _build(context: Context) -> int:
    require_namespaces()
    status = 0
    with tempfile.TemporaryDirectory(prefix="ai-scheduler-image-") as scratch:
        Path(scratch).chmod(0o755)  # who runs the image is not who built it
        for claim in try_image(context, Path(scratch)):
            print(f"{'holds' if claim.holds else 'FAILS'}: {claim.text} ({claim.seen})")
            status = status if claim.holds else 1
    for text in NOT_TRIED:
        print(f"not tried: {text}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
