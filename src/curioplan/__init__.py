"""Goal-reaching skills from curious exploration."""
