"""Foreign dumps → step records, in a process of its own that executes nothing.

    client ── starts ──► decoder process (relax.entrypoints.decode)
                           archive    the zip file and its storages, bounds checked
                           unpickle   C unpickler that knows a short list of names
                           samples    samples one by one, as far as the pickle allows
                           relax.dump.readers   samples → rows, ranks → one step

Nothing in a dump is trusted: not its sizes, not its names, not its structure.
"""
