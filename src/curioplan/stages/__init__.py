"""The stages of a run, each of which leaves on disk what the next one picks up."""
