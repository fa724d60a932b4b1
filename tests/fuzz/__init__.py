"""Coverage-guided fuzzing of the decoders of bytes that come from outside. `make fuzz`."""
