"""How a run ends: by itself, by a drain, and when a drain has waited long enough."""
