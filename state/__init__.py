"""The pure core: facts in, judgements out. No clock, no I/O, no logging; time is an argument."""
