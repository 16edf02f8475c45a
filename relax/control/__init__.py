"""Talking to a run: protocol, client, server, and the run folder."""
