"""The watched resource of Device objects, where they are served.

Invariants:
- It is not needed: if it is not served, or the scheduler may not list it, no node has devices. It is asked for again.
- After each answer, also that the kind is not served, the engine hears that all objects are known.
- The engine hears of an object only if its devices differ from before: agents write the same again.
"""

from typing import Final

import msgspec

from aischeduler.kube.decode.device import DeviceDocument, read_device
from aischeduler.kube.decode.meta_types import Page, WatchEvent
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.model.device import NodeDevices
from aischeduler.model.events import DevicesListed, Seen, gone

DEVICES_PATH: Final = "/apis/scheduling.koordinator.sh/v1alpha1/devices"


def devices() -> WatchedResource[DeviceDocument]:
    """All Device objects: each has the devices of the node of its name."""
    return WatchedResource(
        kind="Device",
        path=DEVICES_PATH,
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[DeviceDocument]),
        page_decoder=msgspec.json.Decoder(Page[DeviceDocument]),
        object_decoder=msgspec.json.Decoder(DeviceDocument),
        seen_event=lambda document: Seen(read_device(document)),
        gone_event=lambda _namespace, name, _uid: gone(NodeDevices, name),
        on_served=lambda _: DevicesListed(listed=True),
        optional=True,
        needed=False,
        rarely_changes=True,
        often_unchanged=True,
    )
