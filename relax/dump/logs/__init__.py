"""Text logs of this and other engines: metrics, crash lines, and where each stands.

    file ── scan (big blocks, one expression) ──► hit lines ── layouts ──► numbers
                                                      └── wanted expressions ──► marks

Only hit lines are decoded, and nothing in a log is ever evaluated.
"""
