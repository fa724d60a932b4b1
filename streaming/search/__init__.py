"""The search of `find-hanging`, `explain` and `abort`: reads a cluster once, and changes nothing."""
