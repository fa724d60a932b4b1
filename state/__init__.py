"""The core: facts in, findings out, and the plans that make events of findings.

Pure: no I/O, no clock, no logging; the time is an argument, or a plan asks for it.
"""
