//! `import`: which files, where to.

use std::path::PathBuf;

use clap::Args;

/// `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A trace, a folder of traces, or the traces of several ranks of one run
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Write the recording to this file instead of among the runs; it must not be there yet
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Of a Chrome trace that another program wrote: the slices of this name are the steps [default: those with a `step_num`, or called `train_step`, `step`, `iteration`]
    #[arg(long, value_name = "NAME", value_parser = step_name)]
    pub step: Option<String>,
    /// A name for people [default: that of the file]
    #[arg(long)]
    pub name: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The name of a step: an empty one, as a variable that is not set gives it, is none.
fn step_name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("the name of the step is empty; leave it out to have it found".to_owned());
    }
    Ok(text.to_owned())
}
