"""The Scheduler: events in, actions out, synchronous and deterministic."""
