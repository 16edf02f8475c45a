"""What happens between samples and new weights."""
