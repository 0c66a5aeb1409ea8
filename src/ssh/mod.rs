//! SSH by russh: host keys, credentials, one channel, and the binary on the host. Layer 2.
