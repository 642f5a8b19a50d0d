"""Fitting features and a head together: one loop, for runs on disk and for the estimator."""
