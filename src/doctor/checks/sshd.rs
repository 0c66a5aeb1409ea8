//! Whether the ssh server lets in as many logins at once as runs make.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Sshd;

const FILE: &str = "/etc/ssh/sshd_config";
/// Logins that are not let in yet, of which none is refused: sshd's own default.
const STARTUPS: u32 = 10;
/// Sessions of one connection: sshd's own default.
const SESSIONS: u32 = 10;
/// `Include` within what was included.
const DEPTH: usize = 4;

/// Settings that hold for all users, as far as the file can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// Whether there is a file that can be read.
    is_read: bool,
    /// Whether it begins with what is in `sshd_config.d`: what stands there counts first.
    #[serde(default)]
    includes: bool,
    sessions: Option<u32>,
    /// `10:30:100`.
    startups: Option<String>,
    /// What the server calls itself: `OpenSSH_9.2p1`.
    #[serde(default)]
    version: Option<String>,
    /// Whether a port can be reached through the host: what a jump host is for.
    forwards: Option<bool>,
}

impl Check for Sshd {
    const NAME: &'static str = "sshd";
    const ASKS: &'static str = "does the ssh server let in as many logins at once as runs make";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let mut found = Found { version: version(site), ..Found::default() };
        let mut lines = Vec::new();
        found.is_read = lines_of(Path::new(FILE), DEPTH, &mut lines);
        found.read(lines.iter().map(String::as_str));
        let text = std::fs::read_to_string(FILE).unwrap_or_default();
        let first = text.lines().find_map(setting);
        found.includes =
            first.is_some_and(|(name, value)| name == "include" && value.contains("sshd_config.d"));
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found)).collect()
    }
}

/// The server's version: older ones tell it as well, with a complaint about the option.
fn version(site: &Site) -> Option<String> {
    let program = site.program("sshd").unwrap_or_else(|| "/usr/sbin/sshd".into());
    let told = site.ask(&program, &["-V"]).ok()?;
    let words = |text: &str| {
        text.split([' ', ',', '\n']).find(|word| word.starts_with("OpenSSH_")).map(str::to_owned)
    };
    words(&told.err).or_else(|| words(&told.out))
}

/// The file's lines, with those of what it includes in their place. Whether it could be read.
fn lines_of(path: &Path, depth: usize, lines: &mut Vec<String>) -> bool {
    let Ok(text) = std::fs::read_to_string(path) else { return false };
    for line in text.lines() {
        match setting(line) {
            Some((name, value)) if name == "include" && depth > 0 => {
                for pattern in value.split_whitespace() {
                    let pattern = Path::new("/etc/ssh").join(pattern.trim_matches('"'));
                    let files = glob::glob(&pattern.to_string_lossy()).into_iter().flatten().flatten();
                    let mut files: Vec<PathBuf> = files.collect();
                    files.sort();
                    for file in files {
                        lines_of(&file, depth - 1, lines);
                    }
                }
            }
            _ => lines.push(line.to_owned()),
        }
    }
    true
}

/// Its name in small letters, and its value.
fn setting(line: &str) -> Option<(String, &str)> {
    let line = line.trim();
    let (name, value) = line.split_once(|c: char| c.is_whitespace() || c == '=')?;
    let is_comment = line.starts_with('#');
    (!is_comment).then(|| (name.to_ascii_lowercase(), value.trim_start_matches('=').trim()))
}

impl Found {
    /// The first value of each counts, and what is below a `Match` holds for some alone.
    fn read<'a>(&mut self, lines: impl Iterator<Item = &'a str>) {
        for (name, value) in lines.filter_map(setting) {
            match name.as_str() {
                "match" if !value.eq_ignore_ascii_case("all") => return,
                "maxsessions" if self.sessions.is_none() => self.sessions = value.parse().ok(),
                "maxstartups" if self.startups.is_none() => self.startups = Some(value.to_owned()),
                "allowtcpforwarding" if self.forwards.is_none() => {
                    self.forwards = Some(matches!(value, "yes" | "all" | "local"));
                }
                _ => {}
            }
        }
    }
}

fn judge(found: &Found) -> Verdict {
    if !found.is_read {
        return Verdict::unknown(format!("{FILE} can't be read"));
    }
    let sessions = found.sessions.unwrap_or(SESSIONS);
    let startups = found.startups.as_deref().unwrap_or("10:30:100");
    let at_once = startups.split(':').next().and_then(|first| first.parse::<u32>().ok()).unwrap_or(STARTUPS);
    let version = found.version.as_ref().map_or_else(String::new, |version| format!("{version}, "));
    let words = format!("{version}MaxStartups {startups}, MaxSessions {sessions}");
    let set = |what: &str| format!("{what} in {FILE}, then: sudo systemctl reload ssh");
    if at_once < STARTUPS {
        let cause = "of logins that come at once some are refused: \"Connection closed by\" or \"reset by peer\" when mpirun or \
                     horovodrun start, or many hosts lie behind it";
        let command = "echo 'MaxStartups 100:30:1000' | sudo tee /etc/ssh/sshd_config.d/10-startups.conf && sudo systemctl reload ssh";
        let verdict = Verdict::look(words, cause, set("MaxStartups 100:30:1000"));
        return if found.includes { verdict.fixed_there(command) } else { verdict };
    }
    if sessions < 2 {
        let cause = "a connection carries one command alone: ControlMaster, and what shares a connection, is refused a second";
        return Verdict::look(words, cause, set("MaxSessions 10"));
    }
    if found.forwards == Some(false) {
        return Verdict::good(format!("{words}, no TCP forwarding: it can't be a jump host"));
    }
    Verdict::good(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    fn of(text: &str) -> Verdict {
        let mut found = Found { is_read: true, ..Found::default() };
        found.read(text.lines());
        judge(&found)
    }

    #[test]
    fn few_logins_at_once_are_told() {
        assert_eq!(of("").mark, Mark::Good);
        assert_eq!(of("#MaxStartups 2\nPort 22\nMaxSessions 10").mark, Mark::Good);
        assert_eq!(of("MaxStartups 2:50:4\nMaxStartups 100").mark, Mark::Look, "the first one counts");
        assert_eq!(of("maxsessions=1").mark, Mark::Look);
        assert_eq!(of("Match User li\nMaxSessions 1").mark, Mark::Good, "not of all");
        assert!(of("AllowTcpForwarding no").evidence.ends_with("it can't be a jump host"));
        assert_eq!(judge(&Found::default()).mark, Mark::Unknown);
    }

    #[test]
    fn what_is_included_comes_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let (main, part) = (folder.path().join("sshd_config"), folder.path().join("10.conf"));
        std::fs::write(&part, "MaxStartups 3\n").unwrap();
        std::fs::write(&main, format!("Include {}/*.conf\nMaxStartups 50\n", folder.path().display()))
            .unwrap();
        let mut lines = Vec::new();
        assert!(lines_of(&main, DEPTH, &mut lines));
        assert_eq!(lines, ["MaxStartups 3", "MaxStartups 50"]);
        // one that includes itself ends
        std::fs::write(&part, format!("Include {}\n", part.display())).unwrap();
        assert!(lines_of(&main, DEPTH, &mut Vec::new()));
    }
}
