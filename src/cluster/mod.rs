//! One task per host: link, protocol, and what comes back as events. Layer 3.
