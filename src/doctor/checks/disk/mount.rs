//! What is mounted where a folder lies, by the kernel's table of mounts: reading that hangs at no file server. Pure.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mount {
    /// Where it is mounted.
    pub(super) point: String,
    /// Its kind: `ext4`, `nfs4`, `fuse.sshfs`.
    pub(super) kind: String,
    /// What is mounted: `fs1:/export/home`.
    pub(super) source: String,
}

impl Mount {
    /// Where this path lies, by the text of `/proc/self/mountinfo`: the deepest counts, of several there the last.
    pub(super) fn of(mounts: &str, path: &Path) -> Option<Self> {
        let all = mounts.lines().filter_map(Self::read);
        let holding = all.filter(|mount| path.starts_with(&mount.point));
        holding.max_by_key(|mount| Path::new(&mount.point).components().count())
    }

    fn read(line: &str) -> Option<Self> {
        let (place, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (kind, source) = (system.next()?.to_owned(), system.next()?.replace("\\040", " "));
        let point = place.split(' ').nth(4)?.replace("\\040", " ");
        Some(Self { point, kind, source })
    }

    /// The file server that it comes from, where it names one.
    pub(super) fn server(&self) -> Option<&str> {
        // what other programs name there may be anything
        if self.kind.starts_with("fuse") && !["fuse.sshfs", "fuse.glusterfs"].contains(&self.kind.as_str()) {
            return None;
        }
        let named = match self.source.strip_prefix("//") {
            Some(rest) => rest.split('/').next()?,
            None => self.source.split_once(":/")?.0,
        };
        // Lustre's network stands behind it, the login name of sshfs before
        let mut parts = named.split('@');
        let server = if self.kind == "lustre" { parts.next() } else { parts.next_back() }?;
        let server =
            if self.kind == "ceph" { server.rsplit_once(':').map_or(server, |(at, _)| at) } else { server };
        let server = server.trim_matches(['[', ']']);
        let is_word = |c: char| c.is_ascii_alphanumeric() || ".:-_".contains(c);
        Some(server).filter(|server| !server.is_empty() && server.chars().all(is_word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
40 22 0:44 / /home rw,relatime shared:20 - autofs systemd-1 rw,fd=51
41 40 0:45 / /home rw,relatime shared:21 - nfs4 fs1:/export/home rw,vers=4.2,hard
42 22 0:46 / /data\\040sets rw - cifs //fs2/sets rw
43 22 0:47 / /home2 rw - fuse.sshfs li@fs3:/home rw
no line of it
";

    #[test]
    fn a_folder_lies_on_the_deepest_mount_and_of_several_there_on_the_last() {
        let of = |path: &str| Mount::of(MOUNTS, Path::new(path)).unwrap();
        let home = of("/home/li/.cache");
        assert_eq!((home.point.as_str(), home.kind.as_str(), home.server()), ("/home", "nfs4", Some("fs1")));
        assert_eq!((of("/homes").kind.as_str(), of("/homes").server()), ("ext4", None));
        assert_eq!(
            (of("/data sets/x").point.as_str(), of("/data sets").server()),
            ("/data sets", Some("fs2"))
        );
        assert_eq!(of("/home2").server(), Some("fs3"));
        assert_eq!(Mount::of("", Path::new("/home")), None);
    }

    #[test]
    fn a_server_is_a_word_of_a_command() {
        let server = |kind: &str, source: &str| {
            let (point, kind, source) = ("/x".to_owned(), kind.to_owned(), source.to_owned());
            Mount { point, kind, source }.server().map(str::to_owned)
        };
        assert_eq!(server("nfs", "[fd00::1]:/x").as_deref(), Some("fd00::1"));
        assert_eq!(server("lustre", "10.0.0.1@tcp:/scratch").as_deref(), Some("10.0.0.1"));
        assert_eq!(server("ceph", "10.0.0.1:6789:/").as_deref(), Some("10.0.0.1"));
        assert_eq!(server("fuse.rclone", "remote:/x"), None);
        assert_eq!(server("ceph", "10.0.0.1:6789,10.0.0.2:6789:/"), None, "several");
        assert_eq!(server("nfs", "fs1;reboot:/x"), None);
        assert_eq!([server("fuse", "stuck"), server("cifs", "//")], [None, None]);
    }
}
