//! Which limits a message of an agent counts for. By the number of its kind, so that what is too much need not be read.

/// What a message of an agent is limited by, by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// A piece of a file, or samples out of one: the client grants so many bytes.
    File,
    /// What is small and comes often.
    Often,
    /// Facts, samples, leases.
    Telemetry,
    /// What a host has to say of a run.
    Note,
    /// An answer that may be long: which runs there are, what of a folder is missing, stacks.
    Answer,
    /// What else becomes an event or an answer.
    Other,
}

impl Lane {
    /// What messages of a kind are limited by.
    pub fn of(kind: u16) -> Self {
        match kind {
            110 | 123 | 145 => Self::File,
            102 | 112 | 126 | 141 => Self::Often,
            103 | 104 | 119 => Self::Telemetry,
            114 => Self::Note,
            113 | 121 | 125 => Self::Answer,
            _ => Self::Other,
        }
    }
}
