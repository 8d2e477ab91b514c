"""Stage 2: every artifact is compared with the source, and gets a verdict."""
