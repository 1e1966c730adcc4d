"""Questions about a state of the engine that people ask, answered by the engine itself; nothing here decides."""
