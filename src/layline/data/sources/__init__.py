"""The sources of data, one file each; the registry is in :mod:`layline.data`."""
