"""Events, conditions and statuses.

Reports of the engine go in; nothing comes out, and a report that cannot be written is dropped.
"""
