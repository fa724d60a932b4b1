"""From facts to findings: one producer, one bucket of producers, one barrier."""
