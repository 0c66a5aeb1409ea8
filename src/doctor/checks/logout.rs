//! Whether logging out ends what a run has started, or takes away its shared memory.

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;
use crate::supervise::logout;

pub(in crate::doctor) struct Logout;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// That it does, with what prevents it; absent where it does not.
    ends: Option<String>,
    /// The user whose shared memory is deleted then; absent where it stays.
    #[serde(default)]
    removes_of: Option<String>,
}

impl Check for Logout {
    const NAME: &'static str = "logout";
    const ASKS: &'static str = "does a run outlive the ssh session that started it";
    type Found = Found;

    fn look(_: &Site) -> Result<Found, String> {
        Ok(Found { ends: logout::ends_runs(), removes_of: logout::removes_memory_of() })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found)).collect()
    }
}

fn linger(user: &str) -> String {
    format!("sudo loginctl enable-linger {}", shell_word(user))
}

fn judge(found: &Found) -> Verdict {
    match &found.ends {
        None => match &found.removes_of {
            None => Verdict::good("a run outlives its ssh session"),
            Some(user) => Verdict::look(
                "a run outlives its ssh session, but for what it has in shared memory (RemoveIPC=yes)",
                "with a user's last session systemd's login manager deletes all of that user's files in /dev/shm, \
                 semaphores and message queues: a detached run can't open them by name any more",
                linger(user),
            )
            .fixed_there(linger(user)),
        },
        Some(text) => {
            let (seen, remedy) = text.rsplit_once(": ").unwrap_or((text, "sudo loginctl enable-linger"));
            let cause =
                "systemd's login manager ends all processes of a user who logs out, detached runs too";
            let user = remedy.split_once("enable-linger ").and_then(|(_, rest)| rest.split('`').next());
            match user {
                Some(user) => Verdict::look(seen, cause, linger(user)).fixed_there(linger(user)),
                None => Verdict::look(seen, cause, remedy),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_is_the_login_managers() {
        let text =
            "logging out ends the run here (KillUserProcesses=yes): `loginctl enable-linger li` prevents it";
        let verdict = judge(&Found { ends: Some(text.to_owned()), removes_of: None });
        assert_eq!(verdict.remedy.as_deref(), Some("sudo loginctl enable-linger li"));
        assert_eq!(verdict.help(), verdict.remedy);
        let of = |removes_of: Option<&str>| {
            judge(&Found { ends: None, removes_of: removes_of.map(str::to_owned) })
        };
        assert_eq!(of(None).remedy, None);
        assert_eq!(of(Some("li")).remedy.unwrap(), "sudo loginctl enable-linger li");
        let seen = "a run outlives its ssh session, but for what it has in shared memory (RemoveIPC=yes)";
        assert_eq!(of(Some("li")).evidence, seen);
    }
}
