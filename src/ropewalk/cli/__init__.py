"""One thin module per command: parse, call one typed function, print what it returned."""
