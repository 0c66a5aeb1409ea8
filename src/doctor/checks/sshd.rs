//! Whether the ssh server lets in as many logins at once as runs make, and takes keys of this account.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;
use crate::procs::status::{real_uid, user_name};
use crate::procs::{memory, table};
use crate::program::home;

pub(in crate::doctor) struct Sshd;

/// The first that is there counts; the second is a vendor's (SUSE).
const FILES: [&str; 2] = ["/etc/ssh/sshd_config", "/usr/etc/ssh/sshd_config"];
/// Behind the command of a server that listens, in its title (OpenSSH 7.7 and newer).
const LISTENER: &str = " [listener]";
/// Characters of such a title at most.
const TITLE: usize = 4096;
/// What stands there counts first, where the file begins with what is in that folder.
const DROP_IN: &str = "/etc/ssh/sshd_config.d/10-startups.conf";
/// The file of keys that counts unless another one is said, below the home folder.
const KEYS: &str = ".ssh/authorized_keys";
/// Logins that are not let in yet, of which none is refused: sshd's own default.
const STARTUPS: u32 = 10;
/// Sessions of one connection: sshd's own default.
const SESSIONS: u32 = 10;
/// `Include` within what was included.
const DEPTH: usize = 4;
/// Of a folder in which each user may put files: `/tmp`.
const STICKY: u32 = 0o1000;

/// Settings that hold for all users, as far as the file can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// Whether there is a file that can be read.
    is_read: bool,
    /// Which one counts.
    #[serde(default)]
    file: Option<String>,
    /// Those files and folders, of it and of what it includes, that can't be read.
    #[serde(default)]
    unread: Vec<String>,
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
    /// Whether keys that others could write are refused (`StrictModes`).
    #[serde(default)]
    strict: Option<bool>,
    /// The files of keys (`AuthorizedKeysFile`).
    #[serde(default)]
    keys: Option<String>,
    /// What others could write of this account's own.
    #[serde(default)]
    loose: Vec<Loose>,
}

/// The file of keys or a folder above it, where another user than its owner and root may change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Loose {
    path: String,
    mode: u32,
    owner: Owner,
    /// Whether it is the home folder or lies below it.
    #[serde(default)]
    is_of_home: bool,
}

/// Whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Owner {
    Own,
    Root,
    Other(String),
}

impl Check for Sshd {
    const NAME: &'static str = "sshd";
    const ASKS: &'static str =
        "does the ssh server let in as many logins at once as runs make, and take this account's keys";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (passwd, groups) = (read("/etc/passwd"), read("/etc/group"));
        let own = rustix::process::getuid().as_raw();
        // Debian's sshd, and that of its like, takes what a group of the user alone may write
        let is_debians = Path::new("/etc/debian_version").exists();
        let loose = loose(&home(), own, |group| is_debians && is_alone(&passwd, &groups, group, own));
        let named = started_with();
        let files = named.as_deref().map_or(FILES.map(Path::new), |file| [file; 2]);
        Ok(Found { version: version(site), loose, ..Found::of(files) })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let has_others = seen.len() > 1;
        seen.iter().map(|one| judge(&one.found, &one.info.user, has_others)).collect()
    }
}

/// The file that the server of this login was started with, where it was started with one (`-f`).
fn started_with() -> Option<PathBuf> {
    let all = table::all();
    let above = table::ancestors(&all, std::process::id());
    let servers = all.iter().filter(|process| process.stat.name == "sshd").filter_map(|process| {
        let title = memory::command_words(process.pid, TITLE)?;
        let is_above = above.contains(&process.pid);
        // anyone can give a process this title, and the name of a file that is never read to its end
        let is_trusted = is_above || real_uid(process.pid).ok().flatten() == Some(0);
        (is_trusted && title.contains(LISTENER)).then_some((is_above, title))
    });
    named_by(&servers.collect::<Vec<_>>())
}

/// The file of the server that has let this process in, else of the only one, by their titles.
fn named_by(servers: &[(bool, String)]) -> Option<PathBuf> {
    let above = servers.iter().find(|(is_above, _)| *is_above);
    let ((Some((_, title)), _) | (None, [(_, title)])) = (above, servers) else { return None };
    let mut words =
        title.split(LISTENER).next()?.split_whitespace().skip_while(|word| !word.starts_with("-f"));
    let file = match words.next()?.strip_prefix("-f")? {
        "" => words.next()?,
        file => file,
    };
    // another one is below a folder that is not known
    file.starts_with('/').then(|| PathBuf::from(file))
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

/// Of the file of keys and the folders above it, up to the home folder or, where it is not below that, to the root, those for which
/// sshd refuses the keys (its `safe_path`); with the groups that may write them. Without that file there are no keys to refuse.
fn loose(home: &Path, own: u32, may_write: impl Fn(u32) -> bool) -> Vec<Loose> {
    let Ok(home) = home.canonicalize() else { return Vec::new() };
    let Ok(keys) = home.join(KEYS).canonicalize() else { return Vec::new() };
    let mut found = Vec::new();
    for path in keys.ancestors() {
        if let Ok(meta) = path.metadata() {
            let (mode, uid) = (meta.mode() & 0o7777, meta.uid());
            let owner = match uid {
                _ if uid == own => Owner::Own,
                0 => Owner::Root,
                _ => Owner::Other(user_name(uid)),
            };
            let is_open = mode & 0o002 != 0 || (mode & 0o020 != 0 && !may_write(meta.gid()));
            if is_open || matches!(owner, Owner::Other(_)) {
                let is_of_home = path.starts_with(&home);
                found.push(Loose { path: path.display().to_string(), mode, owner, is_of_home });
            }
        }
        if path == home {
            break;
        }
    }
    found
}

/// Whether this user alone is of a group, by `/etc/passwd` and `/etc/group`; of one that those do not have it is not known.
fn is_alone(passwd: &str, groups: &str, group: u32, own: u32) -> bool {
    let number = |line: &str, at: usize| line.split(':').nth(at)?.parse::<u32>().ok();
    let Some(line) = groups.lines().find(|line| number(line, 2) == Some(group)) else { return true };
    let of_it = passwd.lines().filter(|user| number(user, 3) == Some(group)).map(|user| number(user, 2));
    let members = line.split(':').nth(3).unwrap_or_default().split(',').filter(|name| !name.is_empty());
    let user = |name: &str| passwd.lines().find(|user| user.split(':').next() == Some(name));
    let added = members.map(|name| user(name).and_then(|user| number(user, 2)));
    let mut all = of_it.chain(added).peekable();
    all.peek().is_some() && all.all(|user| user == Some(own))
}

/// The files that an `Include` names, in the order of their names; with them folders that can't be read.
fn included(value: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for pattern in value.split_whitespace() {
        let pattern = Path::new("/etc/ssh").join(pattern.trim_matches('"'));
        let files = glob::glob(&pattern.to_string_lossy()).into_iter().flatten();
        let files = files.map(|file| file.unwrap_or_else(|error| error.path().to_owned()));
        let mut files: Vec<PathBuf> = files.collect();
        files.sort();
        all.extend(files);
    }
    all
}

/// Its name in small letters, and its value.
fn setting(line: &str) -> Option<(String, &str)> {
    let line = line.trim();
    let (name, value) = line.split_once(|c: char| c.is_whitespace() || c == '=')?;
    let is_comment = line.starts_with('#');
    (!is_comment).then(|| (name.to_ascii_lowercase(), value.trim_start_matches('=').trim()))
}

impl Found {
    /// What the first of these files says that is there.
    fn of(files: [&Path; 2]) -> Self {
        let mut found = Self::default();
        let Some(file) = files.into_iter().find(|file| file.exists()) else { return found };
        found.file = Some(file.display().to_string());
        let Ok(text) = found.text(file) else { return found };
        found.is_read = true;
        let first = text.lines().find_map(setting);
        found.includes =
            first.is_some_and(|(name, value)| name == "include" && value.contains("sshd_config.d"));
        found.read(&text, DEPTH);
        found
    }

    fn text(&mut self, file: &Path) -> io::Result<String> {
        let text = std::fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if text.is_err() {
            self.unread.push(file.display().to_string());
        }
        text
    }

    /// Takes over what a file says, with what it includes in its place. The first value of each counts; what is below a `Match` holds
    /// for some alone, up to the next one or the end of its own file.
    fn read(&mut self, text: &str, depth: usize) {
        let mut is_of_all = true;
        for (name, value) in text.lines().filter_map(setting) {
            let word = value.split_whitespace().next().unwrap_or_default();
            match name.as_str() {
                "match" => is_of_all = word.eq_ignore_ascii_case("all"),
                _ if !is_of_all => {}
                "include" if depth > 0 => {
                    for file in included(value) {
                        if let Ok(text) = self.text(&file) {
                            self.read(&text, depth - 1);
                        }
                    }
                }
                "maxsessions" if self.sessions.is_none() => self.sessions = word.parse().ok(),
                "maxstartups" if self.startups.is_none() => self.startups = Some(word.to_owned()),
                "allowtcpforwarding" if self.forwards.is_none() => {
                    let forwarding = ["yes", "all", "local"];
                    self.forwards = Some(forwarding.iter().any(|one| word.eq_ignore_ascii_case(one)));
                }
                "strictmodes" if self.strict.is_none() => {
                    self.strict = Some(!word.eq_ignore_ascii_case("no"));
                }
                "authorizedkeysfile" if self.keys.is_none() => self.keys = Some(value.to_owned()),
                _ => {}
            }
        }
    }

    /// Whether keys of this account's own file are taken, and none that others could write.
    fn is_strict(&self) -> bool {
        let is_own = |file: &str| file.trim_matches('"').trim_start_matches("%h/") == KEYS;
        self.strict != Some(false)
            && self.keys.as_ref().is_none_or(|files| files.split_whitespace().any(is_own))
    }
}

/// Where keys are refused for who may write them.
fn refused(found: &Found, user: &str) -> Option<Verdict> {
    let loose = found.loose.as_slice();
    if loose.is_empty() {
        return None;
    }
    let is_foreign = |one: &&Loose| matches!(one.owner, Owner::Other(_));
    let seen = loose.iter().map(|one| match &one.owner {
        Owner::Other(owner) => format!("{} belongs to {owner}", one.path),
        _ => format!("{} can be written by others (mode {:o})", one.path, one.mode),
    });
    let seen = seen.collect::<Vec<String>>().join("; ");
    // what can't be read may say otherwise
    let is_known = found.is_read && found.unread.is_empty();
    let refuses = if is_known { "refuses" } else { "may refuse" };
    let cause = format!("sshd {refuses} the keys of ~/.ssh/authorized_keys for that (StrictModes)");
    if loose.iter().any(|one| !one.is_of_home || one.mode & STICKY != 0) {
        let remedy = "keep ~/.ssh/authorized_keys in folders that you alone may write; what others use, too, stays as it is";
        return Some(Verdict::look(seen, cause, remedy));
    }
    let paths = |some: Vec<&Loose>| {
        let words = some.into_iter().map(|one| shell_word(&one.path).into_owned());
        Some(words.collect::<Vec<_>>().join(" ")).filter(|words| !words.is_empty())
    };
    let foreign = paths(loose.iter().filter(is_foreign).collect());
    let open = paths(loose.iter().filter(|one| one.mode & 0o022 != 0).collect());
    let is_own = loose.iter().all(|one| one.owner == Owner::Own);
    let sudo = if is_own { "" } else { "sudo " };
    let theirs = if foreign.is_some() { ", where they are yours" } else { "" };
    let chown = foreign.map(|paths| format!("sudo chown {} {paths}", shell_word(user)));
    let chmod = open.map(|paths| format!("{sudo}chmod go-w {paths}"));
    let command = chown.into_iter().chain(chmod).collect::<Vec<String>>().join(" && ");
    let verdict = Verdict::look(seen, cause, format!("{command}{theirs}"));
    Some(if is_known && is_own { verdict.fixed_there(command) } else { verdict })
}

/// The file of a server that was started with one of its own.
fn own_file(found: &Found) -> Option<&str> {
    found.file.as_deref().filter(|file| !FILES.contains(file))
}

fn judge(found: &Found, user: &str, has_others: bool) -> Verdict {
    if let Some(verdict) = refused(found, user).filter(|_| has_others && found.is_strict()) {
        return verdict;
    }
    let version = found.version.as_deref();
    if !found.is_read {
        let and = version.map_or_else(String::new, |version| format!("{version}, and "));
        return Verdict::unknown(match &found.file {
            Some(file) => {
                let of_file =
                    own_file(found).map_or_else(String::new, |file| format!(" -f {}", shell_word(file)));
                format!("{and}only root can read {file}: sudo sshd -T{of_file} tells what it says")
            }
            None => format!("{and}no file of the ssh server can be read"),
        });
    }
    let sessions = found.sessions.unwrap_or(SESSIONS);
    let startups = found.startups.as_deref().unwrap_or("10:30:100");
    let at_once = startups.split(':').next().and_then(|first| first.parse::<u32>().ok()).unwrap_or(STARTUPS);
    let version = version.map_or_else(String::new, |version| format!("{version}, "));
    let by = own_file(found).map_or_else(String::new, |file| format!("{file}: "));
    let words = format!("{version}{by}MaxStartups {startups}, MaxSessions {sessions}");
    // a vendor's file is replaced by its next version
    let is_vendors = found.file.as_deref() == Some(FILES[1]);
    let place = if is_vendors { DROP_IN } else { own_file(found).unwrap_or(FILES[0]) };
    let set = |what: &str| format!("{what} in {place}, then: sudo systemctl reload ssh (or sshd)");
    if at_once < STARTUPS {
        let cause = "of logins that come at once some are refused: \"Connection closed by\" or \"reset by peer\" when mpirun or \
                     horovodrun start, or many hosts lie behind it";
        let command = format!(
            "echo 'MaxStartups 100:30:1000' | sudo tee {DROP_IN} && {{ sudo systemctl reload ssh || sudo systemctl reload sshd; }}"
        );
        let verdict = Verdict::look(words, cause, set("MaxStartups 100:30:1000"));
        return if found.includes { verdict.fixed_there(command) } else { verdict };
    }
    if sessions < 2 {
        let cause = "a connection carries one command alone: ControlMaster, and what shares a connection, is refused a second";
        return Verdict::look(words, cause, set("MaxSessions 10"));
    }
    let jump =
        if found.forwards == Some(false) { ", no TCP forwarding: it can't be a jump host" } else { "" };
    let unread = if found.unread.is_empty() {
        String::new()
    } else {
        format!("; only root can read {}", found.unread.join(", "))
    };
    Verdict::good(format!("{words}{jump}{unread}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::domain::preflight::Mark;

    /// What a file says, `FOLDER` in it for its own.
    fn said(text: &str, drop_ins: &[(&str, &str)]) -> Found {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in drop_ins {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let main = folder.path().join("sshd_config");
        let text = text.replace("FOLDER", &folder.path().display().to_string());
        std::fs::write(&main, text).unwrap();
        Found::of([Path::new("/nowhere/sshd_config"), &main])
    }

    fn of(text: &str) -> Verdict {
        judge(&said(text, &[]), "li", true)
    }

    #[test]
    fn few_logins_at_once_are_told() {
        assert_eq!(of("").mark, Mark::Good);
        assert_eq!(of("#MaxStartups 2\nPort 22\nMaxSessions 10").mark, Mark::Good);
        assert_eq!(of("MaxStartups 2:50:4\nMaxStartups 100").mark, Mark::Look, "the first one counts");
        assert_eq!(of("Match User li\nMaxSessions 1").mark, Mark::Good, "not of all");
        assert_eq!(of("Match User li\nX11Forwarding no\nMatch all\nMaxSessions 1").mark, Mark::Look);
        for (word, is_jump_host) in [("no", false), ("remote", false), ("Yes", true), ("LOCAL", true)] {
            let told = of(&format!("AllowTcpForwarding {word}")).evidence;
            assert_eq!(!told.ends_with("it can't be a jump host"), is_jump_host, "{told}");
        }
        assert_eq!(judge(&Found::default(), "li", true).mark, Mark::Unknown);
    }

    #[test]
    fn a_connection_that_carries_one_command_alone_is_told() {
        for (text, mark) in [
            ("maxsessions=1", Mark::Look),
            ("MaxSessions 0", Mark::Look),
            ("MaxSessions 2 # for ControlMaster", Mark::Good),
            ("MaxSessions 2\nMaxSessions 1", Mark::Good),
            ("#MaxSessions 1", Mark::Good),
        ] {
            assert_eq!(of(text).mark, mark, "{text}");
        }
    }

    #[test]
    fn what_is_included_comes_in_its_place() {
        let of = |main: &str, part: &str| said(main, &[("10.conf", part)]).startups;
        assert_eq!(of("Include FOLDER/*.conf\nMaxStartups 50\n", "MaxStartups 3\n").unwrap(), "3");
        assert_eq!(of("MaxStartups 50\nInclude FOLDER/*.conf\n", "MaxStartups 3\n").unwrap(), "50");
        // one that includes itself ends
        assert_eq!(of("Include FOLDER/sshd_config\nMaxStartups 50\n", "").unwrap(), "50");
        // below a `Match` it holds for some alone
        assert_eq!(of("Match User li\nInclude FOLDER/*.conf\n", "MaxStartups 3\n"), None);
    }

    #[test]
    fn a_match_of_an_included_file_ends_with_it() {
        let sftp = [("50-sftp.conf", "Match User sftp\nForceCommand internal-sftp\nMaxSessions 1\n")];
        let found = said("Include FOLDER/*.conf\nMaxStartups 3\n", &sftp);
        assert_eq!((found.startups.as_deref(), found.sessions), (Some("3"), None));
        assert_eq!(judge(&found, "li", false).mark, Mark::Look);
    }

    #[test]
    fn what_only_root_can_read_is_told_with_the_servers_version() {
        let found = |file: Option<&str>| Found {
            version: Some("OpenSSH_9.9p1".to_owned()),
            file: file.map(str::to_owned),
            ..Found::default()
        };
        let verdict = judge(&found(Some(FILES[0])), "li", true);
        let seen =
            "OpenSSH_9.9p1, and only root can read /etc/ssh/sshd_config: sudo sshd -T tells what it says";
        assert_eq!((verdict.mark, verdict.evidence.as_str()), (Mark::Unknown, seen));
        let none = judge(&found(None), "li", true).evidence;
        assert_eq!(none, "OpenSSH_9.9p1, and no file of the ssh server can be read");
        // a drop-in alone: what the rest says counts
        let drop_in = vec!["/etc/ssh/sshd_config.d/50-cloud-init.conf".to_owned()];
        let found = Found { unread: drop_in, ..said("MaxStartups 100\n", &[]) };
        let verdict = judge(&found, "li", true);
        let seen = "; only root can read /etc/ssh/sshd_config.d/50-cloud-init.conf";
        assert!(verdict.mark == Mark::Good && verdict.evidence.ends_with(seen), "{verdict:?}");
        // a folder in the place of the file, which root can't read either
        let folder = tempfile::tempdir().unwrap();
        let found = Found::of([folder.path(), folder.path()]);
        assert_eq!((found.is_read, found.unread.len()), (false, 1));
    }

    #[test]
    fn the_file_of_the_server_that_let_this_process_in_counts() {
        let server = |is_above: bool, words: &str| {
            (is_above, format!("sshd: /usr/sbin/sshd {words} [listener] 0 of 200-400 startups"))
        };
        let named = |servers: &[(bool, String)]| named_by(servers).map(|file| file.display().to_string());
        let one = |words: &str| named(&[server(false, words)]);
        assert_eq!(one("-D -f /srv/a/sshd_config -E /srv/a/log").as_deref(), Some("/srv/a/sshd_config"));
        assert_eq!(one("-D -f/srv/sshd_config").as_deref(), Some("/srv/sshd_config"));
        assert_eq!([one("-D"), one("-f"), one("-D -f sshd_config")], [None, None, None]);
        let two = [server(false, "-f /srv/a"), server(true, "-f /srv/b")];
        assert_eq!(named(&two).as_deref(), Some("/srv/b"));
        assert_eq!(named(&[server(true, "-D"), server(false, "-f /srv/a")]), None, "the usual file");
        assert_eq!(named(&[server(false, "-D"), server(false, "-f /srv/a")]), None, "which one is not known");
    }

    #[test]
    fn a_file_of_its_own_is_named() {
        let found = |is_read: bool| Found {
            file: Some("/srv/sshd_config".to_owned()),
            is_read,
            startups: Some("3".to_owned()),
            ..Found::default()
        };
        let verdict = judge(&found(true), "li", true);
        assert_eq!(verdict.evidence, "/srv/sshd_config: MaxStartups 3, MaxSessions 10");
        let remedy = verdict.remedy.unwrap();
        assert!(remedy.contains(" in /srv/sshd_config, then"), "{remedy}");
        let unread = judge(&found(false), "li", true).evidence;
        let seen = "only root can read /srv/sshd_config: sudo sshd -T -f /srv/sshd_config tells what it says";
        assert_eq!(unread, seen);
    }

    #[test]
    fn what_a_vendor_brings_is_not_changed() {
        let found = |file: &str| Found {
            file: Some(file.to_owned()),
            is_read: true,
            startups: Some("3".to_owned()),
            ..Found::default()
        };
        let remedy = |file: &str| judge(&found(file), "li", true).remedy.unwrap();
        assert!(remedy(FILES[0]).contains(" in /etc/ssh/sshd_config, then"));
        assert!(remedy(FILES[1]).contains(" in /etc/ssh/sshd_config.d/10-startups.conf, then"));
    }

    /// A home with a file of keys, all of it as sshd wants it.
    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".ssh")).unwrap();
        std::fs::write(home.path().join(".ssh/authorized_keys"), "").unwrap();
        for (path, mode) in [("", 0o755), (".ssh", 0o700), (".ssh/authorized_keys", 0o600)] {
            change(&home, path, mode);
        }
        home
    }

    fn change(home: &tempfile::TempDir, path: &str, mode: u32) {
        std::fs::set_permissions(home.path().join(path), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn keys_that_others_could_write_are_told_with_the_command_that_helps() {
        let home = home();
        let own = home.path().metadata().unwrap().uid();
        let verdict = |setting: &str, has_others: bool| {
            let found = Found { loose: loose(home.path(), own, |_| false), ..said(setting, &[]) };
            judge(&found, "li", has_others)
        };
        assert_eq!(verdict("", true).mark, Mark::Good);
        for (path, mode) in [("", 0o775), (".ssh", 0o777), (".ssh/authorized_keys", 0o620)] {
            change(&home, path, mode);
            let real = home.path().canonicalize().unwrap().join(path).display().to_string();
            let real = real.trim_end_matches('/');
            let told = verdict("", true);
            let seen = format!("{real} can be written by others (mode {mode:o})");
            assert_eq!((told.mark, told.evidence.as_str()), (Mark::Look, seen.as_str()));
            assert_eq!(told.help().unwrap(), format!("chmod go-w {real}"));
            assert_eq!(verdict("StrictModes no", true).mark, Mark::Good);
            assert_eq!(verdict("AuthorizedKeysFile /etc/ssh/keys/%u", true).mark, Mark::Good);
            assert_eq!(verdict("AuthorizedKeysFile /x .ssh/authorized_keys", true).mark, Mark::Look);
            assert_eq!(verdict("", false).mark, Mark::Good, "no other host logs in to it");
            change(&home, path, mode & 0o755);
        }
        assert_eq!(verdict("", true).mark, Mark::Good);
        // a group of the user alone
        change(&home, "", 0o775);
        assert!(loose(home.path(), own, |_| true).is_empty());
        change(&home, "", 0o777);
        assert_eq!(loose(home.path(), own, |_| true).len(), 1);
        // without the file there are no keys to refuse
        std::fs::remove_file(home.path().join(KEYS)).unwrap();
        assert!(loose(home.path(), own, |_| true).is_empty());
    }

    /// The verdict on a host of several, where this is what others could write.
    fn told(loose: Vec<Loose>) -> Verdict {
        judge(&Found { loose, ..said("", &[]) }, "li", true)
    }

    #[test]
    fn folders_that_others_use_too_are_left_as_they_are() {
        let one = |path: &str, mode, is_of_home| Loose {
            path: path.to_owned(),
            mode,
            owner: Owner::Own,
            is_of_home,
        };
        // a link that leads out of the home, and a home that is not one's own
        let outside = vec![one("/scratch/li/.ssh", 0o775, false), one("/scratch", 0o1777, false)];
        for loose in [outside, vec![one("/tmp", 0o1777, true)], vec![one("/home/li", 0o3775, true)]] {
            let verdict = told(loose);
            assert!(verdict.mark == Mark::Look && verdict.fix.is_none(), "{verdict:?}");
            assert!(!verdict.remedy.unwrap().contains("chmod"));
        }
        assert!(told(vec![one("/home/li", 0o775, true)]).fix.is_some());

        let place = tempfile::tempdir().unwrap();
        let (home, shared) = (place.path().join("home"), place.path().join("shared"));
        std::fs::create_dir_all(shared.join(".ssh")).unwrap();
        std::fs::create_dir(&home).unwrap();
        std::fs::write(shared.join(".ssh/authorized_keys"), "").unwrap();
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777)).unwrap();
        std::os::unix::fs::symlink(shared.join(".ssh"), home.join(".ssh")).unwrap();
        let found = loose(&home, place.path().metadata().unwrap().uid(), |_| false);
        assert!(found.iter().any(|one| one.path.ends_with("/shared")), "{found:?}");
        assert!(found.iter().all(|one| !one.is_of_home) && told(found).fix.is_none());
    }

    #[test]
    fn where_the_servers_files_are_not_read_keys_may_be_refused() {
        let path = "/home/li/.ssh".to_owned();
        let loose = vec![Loose { path, mode: 0o775, owner: Owner::Own, is_of_home: true }];
        let cause = |found: Found| {
            let verdict = judge(&found, "li", true);
            assert_eq!(verdict.help().as_deref(), Some("chmod go-w /home/li/.ssh"));
            (verdict.fix.is_some(), verdict.cause.unwrap())
        };
        let refuses =
            |words: &str| format!("sshd {words} the keys of ~/.ssh/authorized_keys for that (StrictModes)");
        let known = Found { loose: loose.clone(), ..said("", &[]) };
        assert_eq!(cause(known), (true, refuses("refuses")));
        let unread = vec!["/etc/ssh/sshd_config.d/50-cloud-init.conf".to_owned()];
        let in_part = Found { loose: loose.clone(), unread, ..said("", &[]) };
        for found in [in_part, Found { loose, file: Some(FILES[0].to_owned()), ..Found::default() }] {
            assert_eq!(cause(found), (false, refuses("may refuse")));
        }
    }

    #[test]
    fn a_group_is_a_users_own_where_no_other_is_of_it() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nli:x:1000:1000::/home/li:/bin/sh\nwu:x:1001:100::/home/wu:/bin/sh\n";
        let groups = "root:x:0:\nli:x:1000:\nlab:x:100:li\nown:x:200:li\nnone:x:300:\nboth:x:400:li,wu\n";
        let of_li = |group: u32| is_alone(passwd, groups, group, 1000);
        assert_eq!([0, 1000, 100, 200, 300, 400].map(of_li), [false, true, false, true, false, false]);
        assert!(of_li(7777), "a group from elsewhere");
    }

    #[test]
    fn keys_of_another_user_are_told_with_whose_they_are() {
        let home = home();
        let own = home.path().metadata().unwrap().uid();
        // as the files of one user look to another one; those of root are never another's
        let foreign = loose(home.path(), own + 1, |_| false);
        assert_eq!(foreign.is_empty(), own == 0, "{foreign:?}");
        let one = |path: &str, mode, owner| Loose { path: path.to_owned(), mode, owner, is_of_home: true };
        let verdict = told(vec![one("/home/li/.ssh", 0o775, Owner::Other("wu".to_owned()))]);
        assert_eq!(verdict.evidence, "/home/li/.ssh belongs to wu");
        let remedy = "sudo chown li /home/li/.ssh && sudo chmod go-w /home/li/.ssh, where they are yours";
        assert_eq!((verdict.fix.is_some(), verdict.remedy.as_deref()), (false, Some(remedy)));
        let of_root = told(vec![one("/home/li", 0o777, Owner::Root)]);
        let remedy = "sudo chmod go-w /home/li";
        assert_eq!((of_root.fix.is_some(), of_root.remedy.as_deref()), (false, Some(remedy)));
    }
}
