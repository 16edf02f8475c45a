"""The event log: types, encoding, appending, following."""
