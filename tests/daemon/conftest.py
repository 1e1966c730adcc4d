import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from aischeduler.config.schema import Logging
from aischeduler.observability.logging import configure


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Yield a function that returns the lines logged so far."""
    out = io.BytesIO()
    configure(Logging(), out)
    yield lambda: [json.loads(line) for line in out.getvalue().splitlines()]
    structlog.reset_defaults()
