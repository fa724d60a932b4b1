"""The page of a watch: what it shows, when it may be green, its JSON, and the files of the browser."""
