"""Requests: a method, a path and bytes go in; the bytes of the answer, or an error of `errors`, come out."""
