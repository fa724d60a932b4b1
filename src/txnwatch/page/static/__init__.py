"""The files of the browser; `site_files.py` serves them. vendor.lock.toml names those of other projects."""
