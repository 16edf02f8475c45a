"""Regions of the screens: functions from snapshots to lines."""
