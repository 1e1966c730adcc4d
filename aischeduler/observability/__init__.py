"""Logs, metrics and health of the running daemon; telemetry changes nothing."""
