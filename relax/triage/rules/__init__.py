"""One file a check; each exports its `RULE`."""
