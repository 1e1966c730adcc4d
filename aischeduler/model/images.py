"""Container images: those that a node has, and how a pod's image is named there.

Invariant: an image name is kept as a number only. Scheduling compares names, and files of this program need not have
them.

Source: kube-scheduler's ImageLocality.
"""

from hashlib import blake2b
from typing import Final

from msgspec import Struct

ImageId = int
"""A number that stands for the name of an image. Among 100,000 names, two share one with a chance of 1 in 50,000."""
ID_BYTES: Final = 6
"""Every program reads a number of this size in JSON exactly."""


class NodeImage(Struct, frozen=True):
    """An image on a node: its names, by tag and by digest, and its size. Nodes with equal images share one object."""

    names: tuple[ImageId, ...]
    size_bytes: int


def image_id(name: str) -> ImageId:
    """Return the number of an image name as a node lists it."""
    return int.from_bytes(blake2b(name.encode(), digest_size=ID_BYTES).digest())


def normalized_image(name: str) -> str:
    """Return the name under which nodes list an image: one without tag and digest has the tag `latest`."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
