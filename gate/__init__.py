"""Whether a build may take the place of the last accepted one."""
