"""Pictures and pages of results. They read what a run wrote, and never train."""
