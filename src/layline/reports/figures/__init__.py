"""The figures of a report: pure functions from numbers to what plotly draws.

A figure is a dictionary with ``data`` and ``layout``. A colour is a name such as ``@accent`` that
the page fills in, so that light and dark need no second figure.
"""
