"""The pool scenarios: one suite, run in three environments with a scheduler in each."""
