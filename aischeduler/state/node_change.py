"""What changed of a node."""

from enum import IntFlag


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
