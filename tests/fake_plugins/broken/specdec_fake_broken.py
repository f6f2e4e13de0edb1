"""A plugin whose import fails."""

import specdec_fake_dependency_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401
