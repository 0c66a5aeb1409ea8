//! What a person asks for when launching, and what it becomes: requests, their readers, plans. Layer 1, pure.
//!
//! Text (command line, form, pasted line, recipe, past run) becomes a [`request::LaunchRequest`]; the launcher resolves
//! it against what the hosts have into a [`plan::LaunchPlan`], which is shown, and then started as it was shown.
//! Files, the environment and the hosts are handed in.

pub mod again;
pub mod allocation;
pub mod batch_lines;
pub mod by_hand;
pub mod container;
pub mod delegate;
mod ending;
pub mod environment;
pub mod environment_run;
pub mod error;
pub mod fields;
pub mod folder;
pub mod host_list;
pub mod line_place;
pub mod name;
pub mod names;
pub mod own_line;
pub mod part;
pub mod paste;
mod pasted_container;
pub mod pasted_request;
pub mod plan;
pub mod preview;
mod prompt;
pub mod read;
pub mod remark;
pub mod remote_start;
pub mod request;
pub mod setup;
pub mod srun;
pub mod suspect;
pub mod words;
