//! One rank of hvtui's own training jobs. Layer 3.
