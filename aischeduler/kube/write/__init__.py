"""Bindings, evictions and volumes: actions of the engine go in; their outcomes come out, each once."""
