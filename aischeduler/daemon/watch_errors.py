"""Logs the errors of lists and watches, and writes a Warning event on each object that cannot be read."""

from http import HTTPStatus

from structlog.typing import FilteringBoundLogger

from aischeduler.daemon.leadership import Leadership
from aischeduler.kube.errors import ApiError, RefusedError, ResourceNotServedError
from aischeduler.kube.log_fields import object_fields
from aischeduler.kube.pool_crd import NOT_INSTALLED
from aischeduler.kube.reporter import Reporter
from aischeduler.kube.watched_resources import UnreadableObject
from aischeduler.model.actions import ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason


class WatchErrors:
    """Handles the errors of all reflectors; `reporter` writes the events, only while this scheduler leads."""

    def __init__(self, log: FilteringBoundLogger, reporter: Reporter, leadership: Leadership) -> None:
        self._log = log
        self._reporter = reporter
        self._leadership = leadership

    def list_or_watch_failed(self, kind: str, error: ApiError) -> None:
        """Log that a list or a watch of this kind failed."""
        refused = error.status if isinstance(error, RefusedError) else 0
        if refused == HTTPStatus.FORBIDDEN:
            self._log.warning("permission missing", kind=kind, reason=str(error))
        elif isinstance(error, ResourceNotServedError) and kind != "Pool":
            self._log.info("kind not served", kind=kind, reason="no object of this kind exists; it is looked for again")
        elif isinstance(error, ResourceNotServedError):
            until_then = "until it is, all nodes and pods are in the default pool"
            self._log.warning("Pool definition missing", kind=kind, reason=f"{NOT_INSTALLED}; {until_then}")
        elif refused == HTTPStatus.GONE:
            self._log.info("listing again", kind=kind, reason=str(error))
        else:
            self._log.warning("list or watch failed", kind=kind, reason=str(error))

    def object_unreadable(self, found: UnreadableObject) -> None:
        """Log that an object cannot be read, and write the event."""
        about = ObjectRef(found.kind, found.name, found.uid, found.namespace)
        self._log.warning("object not readable", **object_fields(about), reason=found.message)
        if found.name and found.uid and self._leadership.leads:
            message = f"The scheduler cannot read this object: {found.message}"
            self._reporter.report_warning(Warn(about, EventReason.UNREADABLE, message))
