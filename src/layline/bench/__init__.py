"""Many training runs: from a grid of them to the tables that compare their results.

``grid`` describes the runs, ``runner`` and ``engines`` run them, ``store`` keeps them,
``summaries``, ``statistics``, ``tables`` and ``results`` compare them, ``paper`` has the paper's.
"""
