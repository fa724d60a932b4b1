"""The outbound edge: what was judged, told to people and programs."""
