"""Decisions larger than one rule, made on trials; they return outcomes and change nothing else."""
