"""The fields of pods that the tests' own programs read from lists and watches."""

import msgspec


class Resources(msgspec.Struct):
    requests: dict[str, str] | None = None


class Container(msgspec.Struct, rename="camel"):
    resources: Resources | None = None
    restart_policy: str | None = None


class Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""


class Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: Resources | None = None
    overhead: dict[str, str] | None = None


class Status(msgspec.Struct):
    phase: str = ""


class Pod(msgspec.Struct):
    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)


class Pods(msgspec.Struct):
    """A list of pods."""

    metadata: Metadata
    items: list[Pod]


class Line(msgspec.Struct):
    """A line of a watch; the object of an `ERROR` is not a pod."""

    type: str
    object: msgspec.Raw
