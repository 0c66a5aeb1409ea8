//! The command line: parses, wires the program together, writes to standard output. Layer 4.
