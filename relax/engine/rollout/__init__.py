"""From prompts to samples."""
