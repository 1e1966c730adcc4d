"""An API server in memory; it decides nothing about scheduling and imports no package that does."""
