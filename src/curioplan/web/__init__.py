"""The playground: a local page on which a trained agent can be sent to goals, watched and disturbed."""
