"""Dumps of this and other engines."""
