//! Which host keys are known: OpenSSH's `known_hosts`, read as OpenSSH reads it.
//!
//! Pure over the files' text, with one thin function that reads them. russh has a reader too; it accepts
//! revoked keys and does not know wildcards, tabs or a second key for one name, so it is not used.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ring::hmac;
use russh::keys::Algorithm;
use russh::keys::ssh_encoding::base64::{Base64, Encoding};

use super::error::TrustError;
use super::host_key::HostKey;
use super::pattern;
use super::server::Server;
pub use super::verdict::{Forget, KnownKey, Place, Verdict};

/// The names under which a host may stand in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName {
    /// `address`, or `[address]:port` where the port is not 22.
    full: String,
    /// Without the port, where `full` has one.
    bare: Option<String>,
}

impl HostName {
    /// The names of `address` at `port`; letters' case does not matter.
    pub fn new(address: &str, port: u16) -> Self {
        let address = address.to_ascii_lowercase();
        if port == 22 {
            Self { full: address, bare: None }
        } else {
            Self { full: format!("[{address}]:{port}"), bare: Some(address) }
        }
    }

    /// The names of a server.
    pub fn of(server: &Server) -> Self {
        match &server.alias {
            // An alias stands for the host whatever its port is.
            Some(alias) => Self { full: alias.to_ascii_lowercase(), bare: None },
            None => Self::new(&server.address, server.port),
        }
    }

    /// What a new line says.
    pub fn as_str(&self) -> &str {
        &self.full
    }
}

/// What a line says about its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Key,
    Revoked,
    Authority,
}

/// Whom a line speaks of.
#[derive(Debug, Clone)]
enum Names {
    Patterns(String),
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

#[derive(Debug, Clone)]
struct Entry {
    place: Place,
    mark: Mark,
    names: Names,
    key: HostKey,
}

/// All lines of all files.
#[derive(Debug, Clone, Default)]
pub struct KnownHosts {
    entries: Vec<Entry>,
}

impl KnownHosts {
    /// Reads the files. A file that is not there has no keys; one that can't be read is an error, because
    /// what it says, a revoked key perhaps, must not be missed.
    pub fn read(files: &[PathBuf]) -> Result<Self, TrustError> {
        let mut all = Self::default();
        for file in files {
            match std::fs::read(file) {
                Ok(bytes) => all.add(&behind_link(file), &String::from_utf8_lossy(&bytes)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(TrustError::KnownHosts { file: file.clone(), detail: error.to_string() });
                }
            }
        }
        Ok(all)
    }

    /// Takes in one file's text. Lines that can't be understood are skipped, as OpenSSH does.
    pub fn add(&mut self, file: &Path, text: &str) {
        self.entries.extend(
            text.lines()
                .enumerate()
                .filter_map(|(index, line)| parse(line, || Place { file: file.to_owned(), line: index + 1 })),
        );
    }

    /// Judges a key that the host showed.
    pub fn judge(&self, name: &HostName, key: &HostKey) -> Verdict {
        if let Some(place) = self.revoked(name, key) {
            return Verdict::Revoked { place };
        }
        let plain: Vec<&Entry> = self.matching(&name.full).filter(|entry| entry.mark == Mark::Key).collect();
        if plain.iter().any(|entry| entry.key == *key) {
            return Verdict::Known;
        }
        // A line without a port stands for every port of that address, if it has the key.
        let bare = name.bare.iter().flat_map(|bare| self.matching(bare));
        if plain.is_empty() && bare.into_iter().any(|entry| entry.mark == Mark::Key && entry.key == *key) {
            return Verdict::Known;
        }
        let (same, other): (Vec<&Entry>, Vec<&Entry>) =
            plain.into_iter().partition(|entry| entry.key.kind() == key.kind());
        if !same.is_empty() {
            return Verdict::Changed { known: same.into_iter().map(|one| self.known(one, name)).collect() };
        }
        if !other.is_empty() {
            return Verdict::OtherType {
                known: other.into_iter().map(|one| self.known(one, name)).collect(),
            };
        }
        let authority = self.of(name).find(|entry| entry.mark == Mark::Authority);
        Verdict::Unknown { also: self.names_with(key), authority: authority.map(|entry| entry.place.clone()) }
    }

    /// The line that revokes a key for a host.
    pub(super) fn revoked(&self, name: &HostName, key: &HostKey) -> Option<Place> {
        self.find(name, Mark::Revoked, key)
    }

    /// The line that makes a key an authority for a host.
    pub(super) fn authority(&self, name: &HostName, key: &HostKey) -> Option<Place> {
        self.find(name, Mark::Authority, key)
    }

    /// Whether any authority stands for a host.
    pub(in crate::ssh) fn has_authority(&self, name: &HostName) -> bool {
        self.of(name).any(|entry| entry.mark == Mark::Authority)
    }

    fn find(&self, name: &HostName, mark: Mark, key: &HostKey) -> Option<Place> {
        self.of(name).find(|entry| entry.mark == mark && entry.key == *key).map(|entry| entry.place.clone())
    }

    /// The types of key that the files have for a host: what to ask the host for first, so that a host
    /// known by one key does not look new because it shows another.
    pub fn kinds(&self, name: &HostName) -> Vec<Algorithm> {
        let mut kinds = Vec::new();
        for entry in self.of(name).filter(|entry| entry.mark == Mark::Key) {
            if !kinds.contains(&entry.key.kind()) {
                kinds.push(entry.key.kind());
            }
        }
        kinds
    }

    /// The type of the key with this fingerprint, if the files have it for a host.
    pub(in crate::ssh) fn kind_of(&self, name: &HostName, fingerprint: &str) -> Option<Algorithm> {
        let mut keys = self.of(name).filter(|entry| entry.mark == Mark::Key);
        keys.find(|entry| entry.key.fingerprint() == fingerprint).map(|entry| entry.key.kind())
    }

    fn of<'a>(&'a self, name: &'a HostName) -> impl Iterator<Item = &'a Entry> {
        let bare = name.bare.iter().flat_map(|bare| self.matching(bare));
        self.matching(&name.full).chain(bare)
    }

    fn matching<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| entry.names.match_name(name))
    }

    /// What is told of a line that has a key for a host.
    fn known(&self, entry: &Entry, name: &HostName) -> KnownKey {
        let name = &name.full;
        let beside = |other: &&Entry| other.mark == Mark::Key && other.place.file == entry.place.file;
        let forget = if self.matching(name).filter(beside).all(|other| other.names.is_alone(name)) {
            Forget::Name(name.clone())
        } else if entry.names.is_alone(name) {
            Forget::Line
        } else {
            Forget::Except(name.clone())
        };
        KnownKey {
            place: entry.place.clone(),
            algorithm: entry.key.algorithm(),
            fingerprint: entry.key.fingerprint(),
            forget,
        }
    }

    fn names_with(&self, key: &HostKey) -> Vec<String> {
        let mut names = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.mark == Mark::Key && entry.key == *key) {
            let name = match &entry.names {
                Names::Patterns(patterns) => patterns.clone(),
                Names::Hashed { .. } => "(hashed name)".to_owned(),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// The file itself: what takes lines out of a symbolic link would put a file in its place.
fn behind_link(file: &Path) -> PathBuf {
    let real = if file.is_symlink() { std::fs::canonicalize(file).ok() } else { None };
    real.unwrap_or_else(|| file.to_owned())
}

impl Names {
    fn parse(field: &str) -> Option<Self> {
        if !field.starts_with('|') {
            return Some(Self::Patterns(field.to_ascii_lowercase()));
        }
        let (salt, hash) = field.strip_prefix("|1|")?.split_once('|')?;
        let salt = Base64::decode_vec(salt).ok()?;
        let hash = Base64::decode_vec(hash).ok()?;
        Some(Self::Hashed { salt, hash })
    }

    /// Whether they stand for no other name than this one, for which they stand.
    fn is_alone(&self, name: &str) -> bool {
        match self {
            Self::Hashed { .. } => true,
            Self::Patterns(patterns) => patterns == name,
        }
    }

    fn match_name(&self, name: &str) -> bool {
        match self {
            Self::Hashed { salt, hash } => {
                let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
                hmac::verify(&key, name.as_bytes(), hash).is_ok()
            }
            Self::Patterns(patterns) => pattern::any(patterns.split(','), name),
        }
    }
}

fn parse(line: &str, place: impl FnOnce() -> Place) -> Option<Entry> {
    let mut fields = line.split_ascii_whitespace();
    let mut first = fields.next().filter(|field| !field.starts_with('#'))?;
    let mark = match first {
        "@revoked" => Mark::Revoked,
        "@cert-authority" => Mark::Authority,
        marker if marker.starts_with('@') => return None,
        _ => Mark::Key,
    };
    if mark != Mark::Key {
        first = fields.next()?;
    }
    let names = Names::parse(first)?;
    let key = HostKey::from_openssh(&format!("{} {}", fields.next()?, fields.next()?))?;
    Some(Entry { place: place(), mark, names, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = include_str!("../../../tests/fixtures/ssh/ed25519-a.pub");
    const B: &str = include_str!("../../../tests/fixtures/ssh/ed25519-b.pub");
    const ECDSA: &str = include_str!("../../../tests/fixtures/ssh/ecdsa.pub");
    const RSA: &str = include_str!("../../../tests/fixtures/ssh/rsa.pub");
    /// Written by `ssh-keygen -H`: gpu-a with key A, [gpu-b]:2222 with key B.
    const HASHED: &str = include_str!("../../../tests/fixtures/ssh/hashed");

    fn key(text: &str) -> HostKey {
        HostKey::from_openssh(text.trim()).unwrap()
    }

    fn known(text: &str) -> KnownHosts {
        let text = text.replace("$A", A.trim()).replace("$B", B.trim());
        let text = text.replace("$E", ECDSA.trim()).replace("$R", RSA.trim());
        let mut known = KnownHosts::default();
        known.add(Path::new("kh"), &text);
        known
    }

    #[test]
    fn what_stands_for_a_host_is_told_by_its_mark() {
        let name = |host: &str| HostName::new(host, 22);
        let known = known("@cert-authority ca $A\nhost $B\n@strange host $E\n@strange $E\nhost $R\n");
        assert!(known.has_authority(&name("ca")) && !known.has_authority(&name("host")));
        assert!(!known.has_authority(&name("other")));
        assert_eq!(
            known.kinds(&name("host")),
            [key(B).kind(), key(RSA).kind()],
            "an unknown mark says nothing"
        );
        assert_eq!(known.kinds(&name("@strange")), [], "nor is it a name");
        for text in [B, RSA] {
            assert_eq!(known.kind_of(&name("host"), &key(text).fingerprint()), Some(key(text).kind()));
        }
        assert_eq!(known.kind_of(&name("host"), &key(ECDSA).fingerprint()), None);
        assert_eq!(known.kind_of(&name("ca"), &key(A).fingerprint()), None, "an authority is no host's key");
    }

    fn word(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Known => "known",
            Verdict::Unknown { authority: None, .. } => "unknown",
            Verdict::Unknown { .. } => "authority",
            Verdict::Changed { .. } => "changed",
            Verdict::Revoked { .. } => "revoked",
            Verdict::OtherType { .. } => "other",
        }
    }

    /// File, address, port, verdict on key A, and whether `ssh-keygen -F` finds the name.
    const TABLE: &[(&str, &str, u16, &str, bool)] = &[
        ("gpu-a $A", "gpu-a", 22, "known", true),
        ("gpu-a $A li@desk", "gpu-a", 22, "known", true),
        ("gpu-a,10.0.0.7 $A", "10.0.0.7", 22, "known", true),
        ("gpu-a $B", "gpu-a", 22, "changed", true),
        ("gpu-a $B\ngpu-a $A", "gpu-a", 22, "known", true),
        ("gpu-a $R\ngpu-a $E", "gpu-a", 22, "other", true),
        ("gpu-a $R\ngpu-a $B", "gpu-a", 22, "changed", true),
        ("gpu-b $A", "gpu-a", 22, "unknown", false),
        ("", "gpu-a", 22, "unknown", false),
        ("# gpu-a $A", "gpu-a", 22, "unknown", false),
        ("  # gpu-a $A\n\n", "gpu-a", 22, "unknown", false),
        ("  gpu-a $A", "gpu-a", 22, "known", true),
        ("\tgpu-a\t$A", "gpu-a", 22, "known", true),
        ("gpu-a $A\r\n", "gpu-a", 22, "known", true),
        ("GPU-A $A", "gpu-a", 22, "known", true),
        ("gpu-a $A", "GPU-A", 22, "known", true),
        ("*.lan $A", "gpu-a.lan", 22, "known", true),
        ("*.lan $A", "gpu-a.wan", 22, "unknown", false),
        ("gpu-? $A", "gpu-a", 22, "known", true),
        ("gpu-? $A", "gpu-ab", 22, "unknown", false),
        ("*.lan,!gpu-a.lan $A", "gpu-a.lan", 22, "unknown", false),
        ("!gpu-a.lan,*.lan $A", "gpu-b.lan", 22, "known", true),
        ("!gpu-b.lan $A", "gpu-a.lan", 22, "unknown", false),
        ("[gpu-a]:2222 $A", "gpu-a", 2222, "known", true),
        ("[gpu-a]:2222 $A", "gpu-a", 22, "unknown", false),
        ("[gpu-a]:2222 $A", "gpu-a", 2223, "unknown", false),
        ("[gpu-a]:2222 $B\ngpu-a $A", "gpu-a", 2222, "changed", true),
        ("[fe80::1]:2222 $A", "fe80::1", 2222, "known", true),
        ("[*]:2222 $A", "gpu-a", 2222, "known", true),
        ("@revoked * $A\ngpu-a $A", "gpu-a", 22, "revoked", true),
        ("gpu-a $A\n@revoked gpu-a $A", "gpu-a", 22, "revoked", true),
        ("@revoked gpu-b $A\ngpu-a $A", "gpu-a", 22, "known", true),
        ("@revoked * $B\ngpu-a $A", "gpu-a", 22, "known", true),
        ("@revoked gpu-a $A", "gpu-a", 2222, "revoked", false),
        ("@cert-authority *.lan $A", "gpu-a.lan", 22, "authority", true),
        ("@cert-authority *.lan $B\ngpu-a.lan $A", "gpu-a.lan", 22, "known", true),
        ("@other gpu-a $A", "gpu-a", 22, "unknown", false),
        ("gpu-a ssh-ed25519 AAAAbroken\ngpu-a $A", "gpu-a", 22, "known", true),
        ("gpu-a ssh-ed25519\ngpu-a\ngpu-a $A", "gpu-a", 22, "known", true),
        ("gpu-a 2048 65537 1234567\ngpu-a $A", "gpu-a", 22, "known", true),
        ("|1|broken|hash $A\ngpu-a $A", "gpu-a", 22, "known", true),
    ];

    #[test]
    fn files_are_read_as_openssh_reads_them() {
        for (text, address, port, wanted, _) in TABLE {
            let verdict = known(text).judge(&HostName::new(address, *port), &key(A));
            assert_eq!(word(&verdict), *wanted, "{address}:{port} in {text:?}: {verdict:?}");
        }
    }

    #[test]
    fn ssh_keygen_finds_the_same_names() {
        let folder = tempfile::tempdir().unwrap();
        for (text, address, port, _, found) in TABLE {
            let file = folder.path().join("known_hosts");
            let text = text.replace("$A", A.trim()).replace("$B", B.trim());
            std::fs::write(&file, text.replace("$E", ECDSA.trim()).replace("$R", RSA.trim())).unwrap();
            let name = HostName::new(address, *port);
            let mut ssh_keygen = std::process::Command::new("ssh-keygen");
            let output = ssh_keygen.arg("-F").arg(name.as_str()).arg("-f").arg(&file).output();
            let Ok(output) = output else {
                assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none(), "ssh-keygen is missing");
                eprintln!("skipped: ssh-keygen is not installed");
                return;
            };
            assert_eq!(output.status.success(), *found, "ssh-keygen -F {} in {text:?}", name.as_str());
        }
    }

    #[test]
    fn hashed_names_are_found() {
        let known = known(HASHED);
        assert_eq!(known.judge(&HostName::new("gpu-a", 22), &key(A)), Verdict::Known);
        assert_eq!(known.judge(&HostName::new("GPU-B", 2222), &key(B)), Verdict::Known);
        let verdict = known.judge(&HostName::new("gpu-a", 22), &key(B));
        assert!(matches!(&verdict, Verdict::Changed { known } if known[0].place.line == 1), "{verdict:?}");
        let verdict = known.judge(&HostName::new("gpu-c", 22), &key(A));
        assert_eq!(verdict, Verdict::Unknown { also: vec!["(hashed name)".into()], authority: None });
    }

    #[test]
    fn a_line_without_a_port_stands_for_all_ports() {
        let known = known("gpu-a $A");
        assert_eq!(known.judge(&HostName::new("gpu-a", 2222), &key(A)), Verdict::Known);
        assert_eq!(word(&known.judge(&HostName::new("gpu-a", 2222), &key(B))), "unknown");
    }

    #[test]
    fn verdicts_name_the_lines_and_the_other_names() {
        let known = known("# old\nalias,10.0.0.9 $A\n\ngpu-a $B\ngpu-a $R");
        let verdict = known.judge(&HostName::new("gpu-a", 22), &key(A));
        let Verdict::Changed { known: keys } = verdict else { panic!("{verdict:?}") };
        assert_eq!(keys.len(), 1);
        assert_eq!(keys[0].place.to_string(), "kh:4");
        assert_eq!(keys[0].fingerprint, key(B).fingerprint());
        let verdict = known.judge(&HostName::new("new", 22), &key(A));
        assert_eq!(verdict, Verdict::Unknown { also: vec!["alias,10.0.0.9".into()], authority: None });
        let kinds: Vec<_> =
            known.kinds(&HostName::new("gpu-a", 22)).iter().map(ToString::to_string).collect();
        assert_eq!(kinds, ["ssh-ed25519", "ssh-rsa"]);
    }

    #[test]
    fn a_key_is_forgotten_for_its_host_and_for_no_other() {
        let forget = |text: &str, address: &str, port: u16| {
            let verdict = known(text).judge(&HostName::new(address, port), &key(A));
            let Verdict::Changed { known } = verdict else { panic!("{verdict:?}") };
            known.into_iter().map(|one| one.forget).collect::<Vec<_>>()
        };
        let name = |name: &str| Forget::Name(name.to_owned());
        let except = |name: &str| Forget::Except(name.to_owned());
        assert_eq!(forget("gpu-a $B\ngpu-a $R\n@cert-authority * $E", "gpu-a", 22), [name("gpu-a")]);
        assert_eq!(forget("[gpu-a]:2222 $B", "GPU-A", 2222), [name("[gpu-a]:2222")]);
        assert_eq!(forget("gpu-a,10.0.0.7 $B", "gpu-a", 22), [except("gpu-a")]);
        assert_eq!(forget("gpu-? $B\ngpu-a $B", "gpu-a", 22), [except("gpu-a"), Forget::Line]);
        assert_eq!(forget("gpu-a $B\n* $R", "gpu-a", 22), [Forget::Line], "the other line is no host's own");
        let mut hashed = known(HASHED);
        hashed.add(Path::new("other"), "*,!gpu-b ssh-ed25519 AAAAbroken");
        let verdict = hashed.judge(&HostName::new("gpu-a", 22), &key(B));
        assert!(
            matches!(&verdict, Verdict::Changed { known } if known[0].forget == name("gpu-a")),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_file_that_is_missing_is_empty_and_one_that_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(KnownHosts::read(&[folder.path().join("none")]).is_ok());
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::write(&real, format!("gpu-a {}", B.trim())).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let verdict = KnownHosts::read(&[link]).unwrap().judge(&HostName::new("gpu-a", 22), &key(A));
        let Verdict::Changed { known } = verdict else { panic!("{verdict:?}") };
        assert_eq!(known[0].place.file, real.canonicalize().unwrap(), "the file behind a link is named");
        let error = KnownHosts::read(&[folder.path().to_owned()]).unwrap_err();
        assert!(matches!(error, TrustError::KnownHosts { .. }), "{error}");
    }

    /// The plain recursive definition.
    fn slow(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.first(), name.first()) {
            (None, rest) => rest.is_none(),
            (Some(b'*'), _) => slow(&pattern[1..], name) || (!name.is_empty() && slow(pattern, &name[1..])),
            (Some(b'?'), Some(_)) => slow(&pattern[1..], &name[1..]),
            (Some(a), Some(b)) => a == b && slow(&pattern[1..], &name[1..]),
            (Some(_), None) => false,
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics_and_patterns_end(text in ".{0,200}", name in "[a-c*?]{0,12}", pattern in "[a-c*?]{0,12}") {
            known(&text).judge(&HostName::new(&name, 22), &key(A));
            proptest::prop_assert_eq!(
                pattern::matches(&pattern, &name),
                slow(pattern.as_bytes(), name.as_bytes())
            );
        }
    }
}
