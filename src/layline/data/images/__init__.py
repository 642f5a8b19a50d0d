"""Images: decoding, checks, the cache of decoded ones, and their preparation for a network."""
