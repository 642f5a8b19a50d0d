"""Layline: deep ordinal classification by controlling where the classes lie."""
__version__ = "0.1.0"
