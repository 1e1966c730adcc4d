"""The pool scenarios: one suite, three worlds with a scheduler in each, which end before other tests begin."""
