"""Decisions that need more than one plugin. They return results and change no state."""
