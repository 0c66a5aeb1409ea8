//! Which binary goes to which host: hvtui itself, and the agents that lie beside it for other systems.
//!
//! They are looked for as `agents/<target>/hvtui`, where `<target>` is Rust's name of a platform. One for hvtui's own
//! platform goes before hvtui itself: it is the one that was built for old systems. Must not know hosts.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::binary::AgentBinary;
use super::error::AgentError;

/// A platform for which there can be an agent.
struct Platform {
    /// As `uname -sm` names it.
    uname: &'static str,
    /// Rust's names for it, the preferred one first.
    targets: &'static [&'static str],
    /// `e_machine` of its ELF files.
    machine: u16,
}

const PLATFORMS: &[Platform] = &[
    Platform {
        uname: "Linux x86_64",
        targets: &["x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl"],
        machine: 62,
    },
    Platform {
        uname: "Linux aarch64",
        targets: &["aarch64-unknown-linux-gnu", "aarch64-unknown-linux-musl"],
        machine: 183,
    },
];

/// The binaries that can be put on hosts, one a platform.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Agents {
    /// By what `uname -sm` says.
    found: Vec<(String, AgentBinary)>,
    folders: Vec<PathBuf>,
}

impl Agents {
    /// hvtui itself for its own platform, and what lies in `agents/` below each of `folders`, the first one that is
    /// there counting. Reads all of each binary; one that is no program for its platform is an error.
    pub fn find(folders: &[PathBuf]) -> Result<Self, AgentError> {
        let mut found = Vec::new();
        for platform in PLATFORMS {
            let places = folders.iter().flat_map(|folder| {
                platform.targets.iter().map(move |target| folder.join("agents").join(target).join("hvtui"))
            });
            let mut places = places.filter(|path| path.is_file());
            if let Some(path) = places.next() {
                check(&path, platform)?;
                found.push((platform.uname.to_owned(), AgentBinary::from_path(&path)?));
            } else if platform.uname == own_platform() {
                found.push((own_platform(), AgentBinary::of_current_exe()?));
            }
        }
        if !found.iter().any(|(uname, _)| *uname == own_platform()) {
            found.push((own_platform(), AgentBinary::of_current_exe()?));
        }
        Ok(Self { found, folders: folders.to_vec() })
    }

    /// This binary alone, for hvtui's own platform.
    pub fn only(binary: AgentBinary) -> Self {
        Self { found: vec![(own_platform(), binary)], folders: Vec::new() }
    }

    /// The one for a host that says this to `uname -sm`.
    pub(super) fn for_host(&self, uname: &str) -> Option<&AgentBinary> {
        self.found.iter().find(|(platform, _)| platform == uname).map(|(_, binary)| binary)
    }

    /// Each platform's hash.
    pub(super) fn hashes(&self) -> Vec<(String, String)> {
        self.found.iter().map(|(uname, binary)| (uname.clone(), binary.sha256().to_owned())).collect()
    }

    /// Where an agent for a platform would have to lie, for people.
    pub(super) fn place_for(&self, uname: &str) -> Option<String> {
        let platform = PLATFORMS.iter().find(|platform| platform.uname == uname)?;
        let target = platform.targets.first()?;
        let folder = self.folders.first()?;
        Some(folder.join("agents").join(target).join("hvtui").display().to_string())
    }
}

impl From<&AgentBinary> for Agents {
    fn from(binary: &AgentBinary) -> Self {
        Self::only(binary.clone())
    }
}

/// What `uname -sm` says where this program runs.
pub(super) fn own_platform() -> String {
    let system = match std::env::consts::OS {
        "linux" => "Linux",
        other => other,
    };
    format!("{system} {}", std::env::consts::ARCH)
}

/// A file that was put under the wrong name would fail on the host with words that do not help.
fn check(path: &Path, platform: &Platform) -> Result<(), AgentError> {
    let mut head = [0; 20];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    let wrong = |detail: String| AgentError::Binary { path: path.to_owned(), detail };
    read.map_err(|error| wrong(error.to_string()))?;
    // ELF, little-endian, and the machine.
    let machine = u16::from_le_bytes([head[18], head[19]]);
    if head[..4] == *b"\x7fELF" && head[5] == 1 && machine == platform.machine {
        return Ok(());
    }
    Err(wrong(format!("it is no program for {}: put the right one there or remove it", platform.uname)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(machine: u16, more: &str) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(18, 0);
        bytes.extend(machine.to_le_bytes());
        bytes.extend(more.as_bytes());
        bytes
    }

    fn put(folder: &Path, target: &str, content: &[u8]) {
        let place = folder.join("agents").join(target);
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("hvtui"), content).unwrap();
    }

    #[test]
    fn agents_beside_the_program_are_found_first_folder_first() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folders = [one.path().to_owned(), two.path().to_owned()];
        let agents = Agents::find(&folders).unwrap();
        assert_eq!(agents.for_host(&own_platform()), Some(&AgentBinary::of_current_exe().unwrap()));
        assert_eq!(agents.for_host("Linux aarch64").is_some(), own_platform() == "Linux aarch64");
        assert_eq!(agents.for_host("Linux s390x"), None);
        let place = agents.place_for("Linux aarch64").unwrap();
        assert!(place.ends_with("/agents/aarch64-unknown-linux-gnu/hvtui") && place.starts_with('/'));

        put(two.path(), "aarch64-unknown-linux-gnu", &elf(183, "second"));
        put(one.path(), "aarch64-unknown-linux-musl", &elf(183, "first"));
        put(two.path(), "x86_64-unknown-linux-gnu", &elf(62, "old systems"));
        let agents = Agents::find(&folders).unwrap();
        let path = |uname: &str| agents.for_host(uname).unwrap().path().to_owned();
        assert!(path("Linux aarch64").starts_with(one.path()));
        assert!(path("Linux x86_64").starts_with(two.path()), "it goes before hvtui itself");
        assert_eq!(agents.hashes().len(), 2);
    }

    #[test]
    fn a_file_for_another_machine_is_refused() {
        for content in [elf(62, ""), b"#!/bin/sh\n".to_vec(), b"not a program at all".to_vec()] {
            let folder = tempfile::tempdir().unwrap();
            put(folder.path(), "aarch64-unknown-linux-gnu", &content);
            let error = Agents::find(&[folder.path().to_owned()]).unwrap_err().to_string();
            assert!(error.contains("aarch64-unknown-linux-gnu/hvtui"), "{error}");
        }
    }
}
