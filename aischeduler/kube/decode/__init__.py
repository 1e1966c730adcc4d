"""Objects of the API server: their bytes go in; values of `model` come out. Nothing here sends or waits."""
