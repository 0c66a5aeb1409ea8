//! One MCAP file per run: written while it goes, read back, listed, exported. Layer 2.
