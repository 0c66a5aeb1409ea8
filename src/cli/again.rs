//! The hosts file of this command line, for the commands of hvtui in what a person is told.

use std::path::Path;
use std::sync::OnceLock;

use crate::launch::again::HostsOption;

/// `--hosts FILE` of this command line.
static GIVEN: OnceLock<HostsOption> = OnceLock::new();

/// Keeps `--hosts FILE` of the command line for all that is told.
pub(super) fn keep(hosts: Option<&Path>) {
    GIVEN.get_or_init(|| HostsOption::of(hosts));
}

/// What was kept; none before that.
pub(super) fn given() -> HostsOption {
    GIVEN.get().cloned().unwrap_or_default()
}

/// A text whose commands of hvtui have the hosts file that was given.
pub(crate) fn with_hosts(text: &str) -> String {
    given().with(text)
}

/// The option itself before a command behind `hvtui `, with a blank; nothing where none was given.
pub(super) fn hosts_option() -> String {
    given().before_command()
}
