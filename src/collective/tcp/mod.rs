//! TCP between hosts.
