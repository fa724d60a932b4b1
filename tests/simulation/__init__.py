"""A seeded cluster in small, the real reader against it, and a judge who knows everything."""
