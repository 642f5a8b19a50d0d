"""Many runs at once: grids of them, their results, what the results say, and the paper's grids."""
