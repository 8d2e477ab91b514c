"""The commands that `cli` gathers, a file a subject."""
