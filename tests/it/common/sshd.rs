//! A real OpenSSH server on 127.0.0.1 with keys, a home and a log of its own, for one test.

#![expect(clippy::print_stderr, reason = "the log of a test that has failed")]

use std::fmt::Write;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::cluster::skip;
use super::in_time::{OutputInTime, StatusInTime};

/// A running sshd. Ends with the value; its log is printed if the test fails.
pub(crate) struct Sshd {
    child: Child,
    folder: tempfile::TempDir,
    pub(crate) port: u16,
}

/// Where a program is, also outside a user's PATH.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Makes a key pair with ssh-keygen: `file` and `file.pub`.
pub(crate) fn keygen(file: &Path, kind: &str, passphrase: &str) {
    let arguments =
        ["-q", "-t", kind, "-b", if kind == "rsa" { "2048" } else { "256" }, "-C", "test", "-N", passphrase];
    let status = Command::new("ssh-keygen").args(arguments).arg("-f").arg(file).status_in_time().unwrap();
    assert!(status.success(), "ssh-keygen failed");
}

impl Sshd {
    /// Starts a server with one host key of each of `host_keys` (`ed25519`, `ecdsa`, `rsa`) and further lines of
    /// configuration. `None` where OpenSSH is not installed.
    pub(crate) fn start(host_keys: &[&str], more: &str) -> Option<Self> {
        Self::start_behind(None, host_keys, more)
    }

    /// The same with a password for the account that runs the tests: only its server sees that, through a mount
    /// namespace of its own with a copy of `/etc` in which `shadow` and `pam.d/sshd` are others.
    pub(crate) fn start_with_password(password: &str, host_keys: &[&str], more: &str) -> Option<Self> {
        // changed long ago, and never to be changed
        Self::start_with_shadow(password, "19000:0:99999:7:::", host_keys, more)
    }

    /// The same with a password that must be changed now, as `chage -d 0` says it.
    pub(crate) fn start_with_expired_password(
        password: &str,
        host_keys: &[&str],
        more: &str,
    ) -> Option<Self> {
        Self::start_with_shadow(password, "0:0:99999:7:::", host_keys, more)
    }

    fn start_with_shadow(password: &str, aging: &str, host_keys: &[&str], more: &str) -> Option<Self> {
        let allowed = Command::new("unshare")
            .args(["-m", "true"])
            .output_in_time()
            .is_ok_and(|out| out.status.success());
        if !allowed || program("openssl").is_none() || !Path::new("/etc/pam.d/sshd").exists() {
            skip("a server with a password needs root, unshare, openssl and PAM");
            return None;
        }
        let hash = Command::new("openssl").args(["passwd", "-6", password]).output_in_time().unwrap().stdout;
        let hash = String::from_utf8(hash).unwrap();
        let private = tempfile::tempdir().unwrap();
        let (shadow, pam) = (private.path().join("shadow"), private.path().join("pam"));
        fs::write(&shadow, format!("root:{}:{aging}\n", hash.trim())).unwrap();
        let rules = ["auth required pam_unix", "account required pam_unix", "password required pam_unix"];
        fs::write(
            &pam,
            rules.map(|rule| format!("{rule}.so\n")).concat() + "session required pam_permit.so\n",
        )
        .unwrap();
        // a copy, for who changes a password puts a new file in the place of the old one
        let script = "mkdir $0/etc && mount -t tmpfs -o mode=0755 tmpfs $0/etc && cp -a /etc/. $0/etc && \
                      cp $0/shadow $0/etc/shadow && cp $0/pam $0/etc/pam.d/sshd && mount --move $0/etc /etc && \
                      exec \"$@\"";
        let at = private.path().display().to_string();
        let behind = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, &at];
        let server = Self::start_behind(Some(&behind), host_keys, more);
        // the copy is in memory, and lives as long as the server
        drop(private);
        server
    }

    fn start_behind(behind: Option<&[&str]>, host_keys: &[&str], more: &str) -> Option<Self> {
        let Some(sshd) = program("sshd").filter(|_| program("ssh-keygen").is_some()) else {
            skip("openssh-server is not installed");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("home")).unwrap();
        keygen(&at("user"), "ed25519", "");
        fs::copy(at("user.pub"), at("authorized")).unwrap();
        let is_root = fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
        if is_root {
            // What the distribution's start script makes for the privilege separation.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        // the first word of a setting counts
        let mut config = format!("{more}\n");
        for kind in host_keys {
            let file = at(&format!("host_{kind}"));
            keygen(&file, kind, "");
            writeln!(config, "HostKey {}", file.display()).unwrap();
        }
        let (keys, home) = (at("authorized"), at("home"));
        let (keys, home) = (keys.display(), home.display());
        writeln!(
            config,
            "ListenAddress 127.0.0.1\nPidFile none\nStrictModes no\nUsePAM no\nLogLevel DEBUG1\n\
             PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             AuthorizedKeysFile {keys}\nSetEnv HOME={home} XDG_CACHE_HOME={home}/cache"
        )
        .unwrap();
        // The free port may be taken by another test before sshd binds it: then the next one is tried.
        for _ in 0..20 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            fs::write(at("config"), format!("Port {port}\n{config}")).unwrap();
            let log = fs::File::create(at("log")).unwrap();
            let words = behind.unwrap_or_default().iter().map(std::ffi::OsString::from);
            let mut words = words.chain([sshd.clone().into_os_string()]);
            let mut child = Command::new(words.next().unwrap())
                .args(words)
                .arg("-D")
                .arg("-e")
                .arg("-f")
                .arg(at("config"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap();
            if ready(&mut child, port) {
                let this = Self { child, folder, port };
                this.forget_first_visit();
                return Some(this);
            }
            let log = fs::read_to_string(at("log")).unwrap();
            assert!(log.contains("Address already in use"), "sshd does not start: {log}");
        }
        panic!("no free port for sshd");
    }

    /// Waits for the end of our own look at the port: a count of connections starts from there.
    fn forget_first_visit(&self) {
        for _ in 0..2000 {
            let log = self.log();
            if ["Connection closed by", "Connection reset by"].iter().any(|end| log.contains(end)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("sshd does not end a connection within 20 s: {}", self.log());
    }

    /// The server's process, of which those of its connections are children.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A path in the server's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The home of the user who logs in.
    pub(crate) fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// A host key as `type base64`.
    pub(crate) fn host_key(&self, kind: &str) -> String {
        let text = fs::read_to_string(self.path(&format!("host_{kind}.pub"))).unwrap();
        text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    /// Everything sshd logged so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("log")).unwrap()).into_owned()
    }

    /// Waits until every connection has ended, and with it its part of the log. How the end is worded there depends on
    /// what was still under way.
    pub(crate) async fn left(&self) {
        for _ in 0..2000 {
            if children(self.pid()).is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("a connection does not end within 20 s");
    }
}

/// The processes that a server has for its connections, one or two each.
pub(crate) fn children(server: u32) -> Vec<u32> {
    let found = Command::new("pgrep").args(["-P", &server.to_string()]).output_in_time().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(|pid| pid.parse().unwrap()).collect()
}

/// Waits until the server takes connections; `false` if it ended instead.
fn ready(child: &mut Child, port: u16) -> bool {
    for _ in 0..2000 {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            // Another program's port would answer too: ours must still live a moment after.
            return child.try_wait().unwrap().is_none();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("sshd does not answer within 20 s");
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- sshd's log ---\n{}", self.log());
        }
    }
}
