"""The operator of BatchProcess: it makes the pods of a gang and keeps them; it places none of them."""
