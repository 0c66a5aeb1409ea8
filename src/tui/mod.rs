//! The terminal UI: pure core, drawing, sources, runtime. Layer 4.

pub mod source;
