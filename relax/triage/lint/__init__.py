"""Faults that can be seen before a run starts: in flags, YAML and agents' source.

Nothing is imported or run: source is parsed, settings are read as text.
"""
