"""Whether a hanging transaction may be ended, and by which marker."""
