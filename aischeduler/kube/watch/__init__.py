"""Lists and watches: bytes of the API server go in; events for the engine come out."""
