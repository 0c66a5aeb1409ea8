//! The hosts file and what the command line adds to it. Layer 3.
