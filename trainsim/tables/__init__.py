"""What a person reads, as values: tables of typed cells, paragraphs, sections; shown by a terminal or a page."""
