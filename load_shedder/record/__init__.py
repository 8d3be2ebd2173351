"""Record the losses: by plan for people, by event time for the windowed boxes behind the drops."""
