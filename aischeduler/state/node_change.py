"""What changed of a node."""

from enum import IntFlag
from typing import Final


class Change(IntFlag):
    """The changes of a row that may help a waiting pod."""

    NONE = 0
    ROOM = 1
    """More became allocatable."""
    LABELS = 2
    TAINTS = 4
    CORDON = 8
    FEATURES = 32
    JOINED = 16
    """The node is new."""


UNLABELLED: Final = Change.TAINTS | Change.CORDON | Change.FEATURES | Change.JOINED
"""The changes of what masks are built from, but labels."""
STATIC: Final = UNLABELLED | Change.LABELS
"""The changes of what masks are built from."""
MAY_MOVE: Final = Change.LABELS | Change.JOINED
"""The changes that may put a node into another pool, or another place of a topology."""
