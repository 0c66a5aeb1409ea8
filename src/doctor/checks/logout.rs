//! Whether logging out ends what a run has started.

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::supervise::logout;

pub(in crate::doctor) struct Logout;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// That it does, with what prevents it; absent where it does not.
    ends: Option<String>,
}

impl Check for Logout {
    const NAME: &'static str = "logout";
    const ASKS: &'static str = "does a run outlive the ssh session that started it";
    type Found = Found;

    fn look(_: &Site) -> Result<Found, String> {
        Ok(Found { ends: logout::ends_runs() })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found)).collect()
    }
}

fn judge(found: &Found) -> Verdict {
    match &found.ends {
        None => Verdict::good("a run outlives its ssh session"),
        Some(text) => {
            let (seen, remedy) = text.rsplit_once(": ").unwrap_or((text, "sudo loginctl enable-linger"));
            let cause =
                "systemd's login manager ends all processes of a user who logs out, detached runs too";
            Verdict::look(seen, cause, remedy)
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
        let verdict = judge(&Found { ends: Some(text.to_owned()) });
        assert_eq!(verdict.remedy.unwrap(), "`loginctl enable-linger li` prevents it");
        assert!(!judge(&Found { ends: None }).evidence.is_empty());
    }
}
