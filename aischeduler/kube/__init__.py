"""The only Kubernetes code: turns bytes of an API server into events and performs actions; it decides nothing."""
