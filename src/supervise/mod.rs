//! Owns the processes of a run on a host, apart from any client or link. Layer 3.
