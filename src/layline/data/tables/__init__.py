"""Tables: their cells, and how these become numbers."""
