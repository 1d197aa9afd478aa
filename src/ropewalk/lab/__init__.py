"""A small laboratory: byte models trained side by side, their encodings and stretches compared."""
