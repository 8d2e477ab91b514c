"""A module that needs what is not there."""

import missing_dependency_of_the_model  # noqa: F401
