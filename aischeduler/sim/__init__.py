"""A cluster in one process and virtual time around the production engine: it models the world and decides nothing."""
