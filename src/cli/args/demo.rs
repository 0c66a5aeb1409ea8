//! `hvtui demo`.

use clap::Args;

use crate::demo::Size;

/// `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How many hosts it has
    #[arg(value_name = "N", long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub size: u32,
    /// How many GPUs each of them has
    #[arg(value_name = "N", long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub gpus: u32,
    /// Only look: no launch, no stop, no signal
    #[arg(long)]
    pub readonly: bool,
}

impl DemoArgs {
    /// How large the cluster is.
    pub fn size(&self) -> Size {
        Size { hosts: self.size, gpus: self.gpus }
    }
}
