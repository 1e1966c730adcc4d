"""Times as the texts that Kubernetes reads and writes."""

from datetime import UTC, datetime


def time_text(unix_seconds: float, precision: str = "seconds") -> str:
    """Return a time in RFC 3339, with a precision of `seconds` or `microseconds`."""
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def unix_seconds(text: str) -> float:
    """Return the time of a text in RFC 3339; raises ValueError."""
    return datetime.fromisoformat(text).timestamp()
