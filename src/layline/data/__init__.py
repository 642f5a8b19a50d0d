"""Where samples come from, and how they are divided into parts."""

from layline.data.partitions import stratified_holdout

__all__ = ["stratified_holdout"]
