//! From a request to ranks on hosts: the plan, and the state machine that carries it out. Layer 3.
