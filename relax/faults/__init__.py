"""Where drills inject a known fault."""
