"""From facts to findings: for one producer, for one bucket of producers, at one barrier."""
