//! A file or folder whose reader hangs in the kernel: a FUSE daemon that never answers.
//!
//! Knows the few bytes that a FUSE daemon must say to be taken for one.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::in_time::StatusInTime;

/// Answers the kernel's greeting (opcode 26) and nothing after it. Of a folder it takes nothing either: who hangs there can be
/// killed, as on NFS.
const DAEMON: &str = r#"
import ctypes, os, signal, struct, sys
device = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=%s,user_id=%d,group_id=%d" % (device, sys.argv[2].encode(), os.getuid(), os.getgid())
if ctypes.CDLL(None).mount(b"stuck", sys.argv[1].encode(), b"fuse", 0, options) != 0:
    sys.exit(3)
head = os.read(device, 1 << 20)
unique = struct.unpack("<IIQ", head[:16])[2]
answer = struct.pack("<IIIIHHII", 7, 31, 65536, 0, 12, 9, 65536, 1) + bytes(36)
os.write(device, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
print("mounted", flush=True)
while sys.argv[2] == "40755":
    signal.pause()
while True:
    head = os.read(device, 1 << 20)
    print("taken", flush=True)
"#;

/// The file, until this is dropped: then its readers are let go.
pub(crate) struct StuckFile {
    path: PathBuf,
    daemon: Child,
    words: BufReader<std::process::ChildStdout>,
}

impl StuckFile {
    /// `None` where no such file can be made: no right to mount, no python3.
    pub(crate) fn new(path: &Path) -> Option<Self> {
        std::fs::write(path, "").unwrap();
        Self::mount(path, "100644")
    }

    /// The same for a folder.
    pub(crate) fn folder(path: &Path) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        Self::mount(path, "40755")
    }

    fn mount(path: &Path, mode: &str) -> Option<Self> {
        let mut daemon = Command::new("python3")
            .args(["-c", DAEMON])
            .arg(path)
            .arg(mode)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut words = BufReader::new(daemon.stdout.take()?);
        let mut line = String::new();
        words.read_line(&mut line).unwrap();
        if line != "mounted\n" {
            let _ = daemon.wait();
            return None;
        }
        Some(Self { path: path.to_owned(), daemon, words })
    }

    /// Waits until a reader hangs.
    pub(crate) fn taken(&mut self) {
        let mut line = String::new();
        self.words.read_line(&mut line).unwrap();
        assert_eq!(line, "taken\n");
    }
}

impl Drop for StuckFile {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status_in_time();
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
