"""Tools of other makers that OneIR works with, each in a module of its own."""
