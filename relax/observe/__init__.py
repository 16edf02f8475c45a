"""What leaves the engine to be seen: rows of records, worker logs, stacks."""
