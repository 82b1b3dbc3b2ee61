"""What a person sees: text, charts, pages, traces. Nothing is computed here."""
