"""What is measured on a split: metrics with intervals, rates, review lists."""
