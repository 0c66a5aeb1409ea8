//! The lines of the Launch form: their names, hints and order.

/// A line of the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Field {
    /// A launch of the hosts file: a choice.
    Recipe,
    /// The command line, or a launcher's.
    #[default]
    Command,
    /// How it is started: a choice.
    Kind,
    /// How many ranks.
    Ranks,
    /// On which slots.
    On,
    /// Which GPUs a rank sees, and how many are its own.
    Gpus,
    /// A name for people.
    Name,
    /// Variables.
    Env,
    /// Working directory.
    Workdir,
    /// Training network.
    Interface,
    /// Conda, virtual environment, modules.
    Activate,
    /// The folder that is copied first.
    Sync,
    /// The image of containers.
    Image,
    /// Folders that containers see.
    Volumes,
}

impl Field {
    /// All, in the order of the form.
    pub const ALL: [Self; 14] = [
        Self::Recipe,
        Self::Command,
        Self::Kind,
        Self::Ranks,
        Self::On,
        Self::Gpus,
        Self::Name,
        Self::Env,
        Self::Workdir,
        Self::Interface,
        Self::Activate,
        Self::Sync,
        Self::Image,
        Self::Volumes,
    ];

    /// Its name on the form.
    pub fn label(self) -> &'static str {
        match self {
            Self::Recipe => "recipe",
            Self::Command => "command",
            Self::Kind => "kind",
            Self::Ranks => "ranks",
            Self::On => "on",
            Self::Gpus => "gpus",
            Self::Name => "name",
            Self::Env => "env",
            Self::Workdir => "workdir",
            Self::Interface => "interface",
            Self::Activate => "activate",
            Self::Sync => "sync",
            Self::Image => "image",
            Self::Volumes => "volumes",
        }
    }

    /// What it means when it is empty, and how it is written.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Command => "what every rank executes, or a line such as horovodrun -np 2 …",
            Self::Recipe | Self::Kind => "← → changes",
            Self::Ranks => "one on every free GPU; on every CPU slot where there is none",
            Self::On => "the first free slots; or gpu-a:0,1 gpu-b:2; or -H gpu-a:2,gpu-b:1",
            Self::Gpus => "each rank sees all of its host; or own; or 2 for each rank",
            Self::Name => "made from the command",
            Self::Env => "NAME=value NAME=value",
            Self::Workdir => "the hosts file's; else the current folder here, home elsewhere",
            Self::Interface => "chosen by hvtui",
            Self::Activate => "the hosts file's; or conda NAME, venv PATH, module A,B",
            Self::Sync => "nothing is copied; or DIR, DIR:PATH to copy DIR to each host",
            Self::Image => "no containers; or the image in which each rank runs",
            Self::Volumes => "what containers see of a host: /data:/data:ro ~/cache:/cache",
        }
    }

    /// Whether it is seldom written: while it says nothing it shares a line with others of its kind.
    pub fn is_rare(self) -> bool {
        matches!(self, Self::Interface | Self::Activate | Self::Sync | Self::Image | Self::Volumes)
    }

    /// Whether it is one of several, not a text.
    pub fn is_choice(self) -> bool {
        matches!(self, Self::Recipe | Self::Kind)
    }
}
