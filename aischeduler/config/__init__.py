"""The configuration file: its schema and how it is read; every error is one sentence that names file and field."""
