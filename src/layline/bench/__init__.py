"""Many training runs: from a grid of them to the tables that compare their results.

``grid`` describes the runs, ``runner`` runs them, ``store`` keeps them, ``statistics`` and
``tables`` compare them, and ``paper`` has the tables and figures of the paper.
"""
