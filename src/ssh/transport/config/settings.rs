//! From a configuration's words to what they mean, checked. Whatever can't be done is told, with its line.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::evaluate::{Found, Note, Question, Value};
use super::keys;
use super::tokens::Tokens;
use crate::domain::question::HostKeyPolicy;
use crate::domain::text::sanitize;
use crate::ssh::transport::algorithms::{self, Algorithms};
use crate::ssh::transport::target::Family;
use crate::ssh::trust::Allowed;

/// Where the keys of an ssh-agent are looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Agent {
    /// At `$SSH_AUTH_SOCK`.
    #[default]
    Usual,
    /// Nowhere.
    Off,
    /// At this socket.
    Socket(PathBuf),
}

/// The way through something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    /// Hosts to go through, as written: `user@host:port,…`.
    Jump(String),
    /// A command line, its tokens not expanded.
    Command(String),
}

/// What hvtui's own ssh can't do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// What it is, with its line.
    pub note: Note,
    /// Without it a key would be believed that must not be.
    pub vital: bool,
}

/// What the ssh configuration says for one host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// The address behind the name that was asked for.
    pub address: String,
    /// The login name; `None`: the one here.
    pub user: Option<String>,
    /// The port; `None`: 22.
    pub port: Option<u16>,
    /// Private key files; none: the usual ones.
    pub identities: Vec<PathBuf>,
    /// Whether only they are offered.
    pub identities_only: bool,
    /// User certificates.
    pub certificates: Vec<PathBuf>,
    /// Where the ssh-agent is.
    pub agent: Agent,
    /// The person's files of known hosts, where they are named.
    pub user_known_hosts: Option<Vec<PathBuf>>,
    /// The machine's.
    pub global_known_hosts: Option<Vec<PathBuf>>,
    /// What becomes of an unknown key.
    pub policy: Option<HostKeyPolicy>,
    /// The name under which the key is known.
    pub host_key_alias: Option<String>,
    /// How long connecting may take.
    pub connect_timeout: Option<Duration>,
    /// Which addresses are tried.
    pub family: Family,
    /// The address to connect from.
    pub bind_address: Option<IpAddr>,
    /// The way through something else.
    pub proxy: Option<Proxy>,
    /// What may be used to speak with the host.
    pub algorithms: Algorithms,
    /// What may be unknown in the files, as they say it: the system's `ssh` has to be told of it once more.
    pub ignore_unknown: Option<String>,
    /// What only the system's `ssh` can do.
    pub needs: Vec<Need>,
    /// What a person should know.
    pub notes: Vec<Note>,
}

/// What settings depend on beside the files.
pub(super) struct Around<'a> {
    pub(super) question: Question<'a>,
    pub(super) home: &'a Path,
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    /// `ssh -G` said it: names are canonical and conditions are decided already.
    pub(super) by_ssh: bool,
}

/// The meaning of what was found.
pub(super) fn settings(mut found: Found, around: &Around<'_>) -> Settings {
    let notes = std::mem::take(&mut found.notes);
    let reading = Reading { found: &found, notes, around };
    reading.read()
}

struct Reading<'a> {
    found: &'a Found,
    notes: Vec<Note>,
    around: &'a Around<'a>,
}

impl Reading<'_> {
    fn read(mut self) -> Settings {
        let question = self.around.question;
        let port =
            question.port.or_else(|| self.parsed("port", |text| text.parse().ok().filter(|port| *port > 0)));
        let user = question.user.map(str::to_owned).or_else(|| self.found.word("user").map(str::to_owned));
        // As OpenSSH does: names of hosts have no case.
        let address = self.address().to_ascii_lowercase();
        let alias = self.found.word("hostkeyalias").map(str::to_owned);
        let alias_shown = alias.clone().unwrap_or_else(|| question.name.to_owned());
        let user_shown = user.clone().unwrap_or_else(|| question.local_user.to_owned());
        let (home, env) = (self.around.home, self.around.env);
        let tokens = Tokens {
            home,
            name: question.name,
            address: &address,
            port: port.unwrap_or(22),
            user: &user_shown,
            local_user: question.local_user,
            key_alias: &alias_shown,
            env,
        };
        let identities = self.paths("identityfile", &tokens).unwrap_or_default();
        let certificates = self.paths("certificatefile", &tokens).unwrap_or_default();
        let mut needs = self.needs();
        let algorithms = self.algorithms(&mut needs);
        let settings = Settings {
            identities_only: self.parsed("identitiesonly", truth).unwrap_or(false),
            agent: self.agent(&tokens),
            user_known_hosts: self.paths("userknownhostsfile", &tokens),
            global_known_hosts: self.paths("globalknownhostsfile", &tokens),
            policy: self.policy(),
            connect_timeout: self.parsed("connecttimeout", seconds).flatten(),
            family: self.parsed("addressfamily", family).unwrap_or_default(),
            bind_address: self.parsed("bindaddress", |text| text.parse().ok()),
            proxy: self.proxy(),
            ignore_unknown: self.found.word(keys::IGNORE_UNKNOWN).map(str::to_owned),
            needs,
            algorithms,
            notes: Vec::new(),
            host_key_alias: alias,
            address,
            user,
            port,
            identities,
            certificates,
        };
        self.not_acted_upon();
        Settings { notes: self.notes, ..settings }
    }

    fn address(&mut self) -> String {
        let name = self.around.question.name;
        let Some(text) = self.found.word("hostname") else { return name.to_owned() };
        let mut address = String::new();
        let mut parts = text.split('%');
        address.push_str(parts.next().unwrap_or_default());
        let mut literal = false;
        for part in parts {
            match part.chars().next() {
                _ if literal => {
                    address.push_str(part);
                    literal = false;
                }
                Some('h') => {
                    address.push_str(name);
                    address.push_str(part.get(1..).unwrap_or_default());
                }
                // `%%` gives an empty part; a zone (`fe80::1%eth0`) is what ssh -G leaves of it.
                None => {
                    address.push('%');
                    literal = true;
                }
                Some(_) => {
                    address.push('%');
                    address.push_str(part);
                }
            }
        }
        address
    }

    /// The value of a keyword, if it has one that makes sense.
    fn parsed<T>(&mut self, key: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let value = self.found.one(key)?;
        let text = value.words.first()?;
        let parsed = parse(text);
        if parsed.is_none() {
            self.note(Some(value), &format!("{key} {text} is not understood and left out"));
        }
        parsed
    }

    fn paths(&mut self, key: &str, tokens: &Tokens<'_>) -> Option<Vec<PathBuf>> {
        let found = self.found;
        let values = found.values.get(key)?;
        let mut paths = Vec::new();
        for value in values {
            for word in value.words.iter().filter(|word| !word.eq_ignore_ascii_case("none")) {
                match tokens.path(word) {
                    Ok(path) if !paths.contains(&path) => paths.push(path),
                    Ok(_) => {}
                    Err(why) => self.note(Some(value), &format!("{key} {word} is left out: {why}")),
                }
            }
        }
        Some(paths)
    }

    fn agent(&mut self, tokens: &Tokens<'_>) -> Agent {
        let found = self.found;
        let Some(value) = found.one("identityagent") else { return Agent::Usual };
        let text = value.words.first().map(String::as_str).unwrap_or_default();
        let path = match text.strip_prefix('$').filter(|name| !name.starts_with('{')) {
            _ if text.eq_ignore_ascii_case("none") => return Agent::Off,
            _ if text == "SSH_AUTH_SOCK" => return Agent::Usual,
            Some(name) => (tokens.env)(name).map(PathBuf::from).ok_or(format!("${name} is not set")),
            None => tokens.path(text),
        };
        match path {
            Ok(path) => Agent::Socket(path),
            Err(why) => {
                self.note(Some(value), &format!("identityagent {text}: {why}; no agent is asked"));
                Agent::Off
            }
        }
    }

    fn policy(&mut self) -> Option<HostKeyPolicy> {
        let found = self.found;
        let value = found.one("stricthostkeychecking")?;
        match value.words.first()?.to_ascii_lowercase().as_str() {
            "yes" | "true" => Some(HostKeyPolicy::Strict),
            "ask" => Some(HostKeyPolicy::Ask),
            "accept-new" => Some(HostKeyPolicy::AcceptNew),
            "no" | "off" | "false" => {
                let text =
                    "StrictHostKeyChecking no is taken as ask: hvtui never lets a host key go unchecked";
                self.note(Some(value), text);
                Some(HostKeyPolicy::Ask)
            }
            other => {
                self.note(
                    Some(value),
                    &format!("StrictHostKeyChecking {other} is not understood and left out"),
                );
                None
            }
        }
    }

    fn proxy(&self) -> Option<Proxy> {
        let set = |key: &str| self.found.word(key).filter(|text| !text.eq_ignore_ascii_case("none"));
        let jump = set("proxyjump").map(|text| Proxy::Jump(text.to_owned()));
        jump.or_else(|| set("proxycommand").map(|text| Proxy::Command(text.to_owned())))
    }

    fn needs(&self) -> Vec<Need> {
        let mut needs = Vec::new();
        for (key, values) in &self.found.values {
            let Some(value) = values.first().filter(|_| keys::carrier_only(key)) else { continue };
            let word = value.words.first().map(String::as_str).unwrap_or_default();
            let off = matches!(word.to_ascii_lowercase().as_str(), "no" | "none" | "false" | "internal");
            if off {
                continue;
            }
            let note = Note { place: value.place.clone(), text: format!("{key} {}", sanitize(word)) };
            needs.push(Need { note, vital: key == "revokedhostkeys" });
        }
        needs
    }

    /// What may be used to speak with the host. Where nothing is left of a list, only the system's `ssh` may know it.
    fn algorithms(&mut self, needs: &mut Vec<Need>) -> Algorithms {
        let mut algorithms = Algorithms::default();
        let found = self.found;
        for key in algorithms::LISTS {
            let Some(value) = found.one(key) else { continue };
            let text = value.words.first().map(String::as_str).unwrap_or_default();
            let names = algorithms::expand(key, text);
            if names.is_empty() {
                let text = format!("{key} {}: hvtui's own ssh has none of these", sanitize(text));
                needs.push(Need { note: Note { place: value.place.clone(), text }, vital: true });
            } else if let Some(list) = algorithms.list(key) {
                *list = Some(Allowed { names, said: said(key, value) });
            }
        }
        // As OpenSSH does: a list of the whole has its own order, one that is appended to or cut leaves it to the known keys.
        let line = found.one("hostkeyalgorithms").and_then(|value| value.words.last());
        algorithms.keep_order =
            algorithms.host_keys.is_some() && line.is_some_and(|line| !line.starts_with(['+', '-']));
        let bits = self.parsed("requiredrsasize", |text| text.parse().ok());
        let value = found.one("requiredrsasize");
        algorithms.rsa_bits = bits.zip(value).map(|(bits, value)| (bits, said("requiredrsasize", value)));
        algorithms
    }

    /// What is set and not acted upon.
    fn not_acted_upon(&mut self) {
        for (key, values) in &self.found.values {
            let (Some(why), Some(value)) = (keys::noted(key), values.first()) else { continue };
            let word = value.words.first().map(String::as_str).unwrap_or_default();
            let harmless = match key.as_str() {
                "pubkeyauthentication" => truth(word) == Some(true),
                "canonicalizehostname" if self.around.by_ssh => true,
                "canonicalizehostname" | "nohostauthenticationforlocalhost" | "verifyhostkeydns" => {
                    truth(word) == Some(false)
                }
                _ => word.eq_ignore_ascii_case("none"),
            };
            if !harmless {
                self.note(Some(value), &format!("{key} is not acted upon: {why}"));
            }
        }
        if self.found.word("identityfile").is_some_and(|word| word.eq_ignore_ascii_case("none")) {
            let value = self.found.one("identityfile");
            self.note(value, "identityfile none: the usual key files are offered all the same");
        }
    }

    fn note(&mut self, value: Option<&Value>, text: &str) {
        let place = value.and_then(|value| value.place.clone());
        self.notes.push(Note { place, text: sanitize(text).into_owned() });
    }
}

/// Who says so: the option's name as OpenSSH's manual writes it, and its line.
fn said(key: &str, value: &Value) -> String {
    let name = match key {
        "kexalgorithms" => "KexAlgorithms",
        "hostkeyalgorithms" => "HostKeyAlgorithms",
        "ciphers" => "Ciphers",
        "macs" => "MACs",
        "casignaturealgorithms" => "CASignatureAlgorithms",
        "pubkeyacceptedalgorithms" => "PubkeyAcceptedAlgorithms",
        _ => "RequiredRSASize",
    };
    value.place.as_ref().map_or_else(|| name.to_owned(), |place| format!("{name} ({place})"))
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "true" => Some(true),
        "no" | "false" => Some(false),
        _ => None,
    }
}

fn family(text: &str) -> Option<Family> {
    match text.to_ascii_lowercase().as_str() {
        "any" => Some(Family::Any),
        "inet" => Some(Family::Inet),
        "inet6" => Some(Family::Inet6),
        _ => None,
    }
}

/// `none`, seconds, or a sum such as `1m30s`.
#[expect(clippy::option_option, reason = "not understood, or understood as: no limit of its own")]
fn seconds(text: &str) -> Option<Option<Duration>> {
    if text.eq_ignore_ascii_case("none") {
        return Some(None);
    }
    let mut total = 0u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        let unit = match rest.get(digits..)?.chars().next().map(|unit| unit.to_ascii_lowercase()) {
            None | Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            Some('d') => 86400,
            Some('w') => 604_800,
            Some(_) => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = rest.get(digits + 1..).unwrap_or_default();
    }
    (1..=86400).contains(&total).then(|| Some(Duration::from_secs(total)))
}
