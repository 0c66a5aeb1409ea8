//! Collective operations between ranks: the ring allreduce over TCP and its rendezvous. Layer 2.
