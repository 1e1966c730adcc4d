"""Values: what pods, nodes and pools are, what can happen and what can be asked for; knows nothing above it."""
