//! The screens by name.

/// A screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Screen {
    /// All GPUs.
    #[default]
    Cluster,
    /// One host or GPU.
    Detail,
    /// Who uses what.
    Users,
    /// The form that starts a run.
    Launch,
    /// One run.
    Run,
    /// All runs.
    Runs,
    /// One run's recording.
    Replay,
    /// What is wrong with the hosts.
    Doctor,
    /// What the cluster tells by itself.
    Events,
}
