"""The step record: schema, writing and reading."""
