"""An API server in memory that speaks Kubernetes; it decides nothing about scheduling and imports nothing that does."""
