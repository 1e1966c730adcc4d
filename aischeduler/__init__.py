"""Ai-Scheduler: pools of nodes, lending between them, and the owner always first."""

__version__ = "0.1.0"
