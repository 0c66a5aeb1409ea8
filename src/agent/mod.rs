//! Serves one client on a host over any byte stream. Layer 3.
