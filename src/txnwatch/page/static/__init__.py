"""The files of the browser; `assets.py` serves them. vendor.lock.toml names those that another project has written."""
