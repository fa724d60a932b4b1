"""The core of the detector: facts in, findings out. Pure: no I/O, no clock, no logging; the time is an argument."""
