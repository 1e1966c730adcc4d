"""The command line: the only place that prints; it wires parts together and decides nothing."""
