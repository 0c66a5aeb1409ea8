//! The options of `image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::help;

/// `image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Build an image on this machine
    #[command(after_help = help::IMAGE_BUILD)]
    Build(ImageBuildArgs),
    /// Copy an image of this machine to hosts, over SSH and without a registry
    #[command(after_help = help::IMAGE_PUSH)]
    Push(ImagePushArgs),
}

/// `image build`.
#[derive(Debug, Args)]
pub struct ImageBuildArgs {
    /// A folder with a Dockerfile, or a Dockerfile: then its folder is what the build may copy from
    #[arg(value_name = "DIR|DOCKERFILE")]
    pub path: PathBuf,
    /// The image's name [default: the folder's]
    #[arg(short = 't', long = "tag", value_name = "NAME[:TAG]")]
    pub name: Option<String>,
    /// The engine: a program on the search path, or its whole path [default: docker, or podman where docker is not]
    #[arg(long, value_name = "PROGRAM")]
    pub engine: Option<String>,
    /// More arguments of the engine's build
    #[arg(last = true, value_name = "ARG")]
    pub arguments: Vec<String>,
}

/// `image push`.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub struct ImagePushArgs {
    /// To which hosts, joined by commas; ranks behind a colon are passed over, as in -H a:2,b:2 [default: all]
    #[arg(value_name = "HOSTS")]
    pub to: Option<String>,
    /// The image: its name or id on this machine
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Copy nothing: say what each host has and lacks
    #[arg(long)]
    pub dry_run: bool,
    /// This machine's engine: a program on the search path, or its whole path [default: docker, or podman where docker is
    /// not]
    #[arg(long, value_name = "PROGRAM")]
    pub engine: Option<String>,
}
