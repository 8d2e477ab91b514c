"""Stage 1: a source model becomes one artifact per target."""
