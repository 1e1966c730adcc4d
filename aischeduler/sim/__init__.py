"""A virtual cluster in one process: the production engine on virtual time, without sockets and tasks."""
