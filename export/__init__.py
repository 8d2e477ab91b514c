"""Stage 3: what passed becomes a Triton model repository, and reaches a server."""
