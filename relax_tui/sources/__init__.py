"""Where snapshots of a run come from."""
