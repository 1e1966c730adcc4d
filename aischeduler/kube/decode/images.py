"""Read the images of pods and nodes.

Invariants:
- Images of nodes, and the last of their lists, are decoded once per distinct bytes; nodes with equal images share them.
- What cannot be decoded counts as no image: images choose among nodes and keep no pod from one.
"""

from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw, Struct

from aischeduler.kube.decode.api_types import PodSpecPart
from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.model.images import ImageId, NodeImage, image_id, normalized_image

IMAGES_MAX: Final = 20_000
IMAGE_LISTS_MAX: Final = 64
"""How many lists of images are kept decoded: those of nodes of one kind are often equal, and each may have 15 kB."""
_IMAGE: Final = b'"image"'
_read_parts: Final = msgspec.json.Decoder(list[Raw] | None).decode


class _Image(Struct, rename="camel", gc=False):
    """An image in the status of a node."""

    names: list[str] | None = None
    size_bytes: int = 0


class _ImageSource(Struct, gc=False):
    """The image of a volume."""

    reference: str | None = None


class _Volume(Struct, gc=False):
    """A volume, as far as it is an image."""

    image: _ImageSource | None = None


def pod_images(spec: PodSpecPart) -> tuple[ImageId, ...]:
    """Return the images of containers, init containers and volumes, sorted; one may come twice."""
    parts = (*(spec.containers or ()), *(spec.init_containers or ()))
    named = [name for part in parts if part.image and (name := _text(part.image))]
    return tuple(sorted(image_id(normalized_image(name)) for name in (*named, *image_volumes(spec.volumes))))


def image_volumes(volumes: Raw) -> tuple[str, ...]:
    """Return the images of volumes as the pod names them; almost no pod has one."""
    if not volumes or _IMAGE not in bytes(volumes):
        return ()
    try:
        found = msgspec.json.decode(volumes, type=list[_Volume] | None) or []
    except UNREADABLE:
        return ()
    return tuple(volume.image.reference for volume in found if volume.image is not None and volume.image.reference)


def node_images(raw: Raw) -> tuple[NodeImage, ...]:
    """Return the images of a node."""
    return _read_images(bytes(raw)) if raw else ()


@lru_cache(maxsize=IMAGE_LISTS_MAX)
def _read_images(raw: bytes) -> tuple[NodeImage, ...]:
    try:
        parts = _read_parts(raw) or []
    except UNREADABLE:
        return ()
    found = map(_node_image, map(bytes, parts))
    return tuple([image for image in found if image is not None])


@lru_cache(maxsize=IMAGES_MAX)
def _node_image(raw: bytes) -> NodeImage | None:
    try:
        image = msgspec.json.decode(raw, type=_Image)
    except UNREADABLE:
        return None
    names = tuple(dict.fromkeys(image_id(name) for name in image.names or ()))
    return NodeImage(names, image.size_bytes) if names else None


def _text(raw: Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=str | None) or ""
    except UNREADABLE:
        return ""
