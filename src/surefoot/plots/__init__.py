"""How things are drawn: one look a method, and panels that several pictures share."""
