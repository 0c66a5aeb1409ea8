//! The two lines that are run on a host: start the agent, and take in its binary.
//!
//! Constant text but for hexadecimal digits made here. A login shell may be bash, dash, tcsh or fish, and all
//! of them read `exec /bin/sh -c '…'` alike as long as the quoted part has no line feed, no single quote, no
//! exclamation mark (tcsh) and no doubled backslash (fish).

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};

use super::binary::{AgentBinary, hex};
use super::error::SshError;
use crate::wire::handshake::MAGIC;

/// 128 random bits by which our words are told from what else a host prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nonce(String);

impl Nonce {
    pub(super) fn new() -> Result<Self, SshError> {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).map_err(|_| SshError::Random)?;
        Ok(Self(hex(&bytes)))
    }

    /// What stands before our words, and before the agent's.
    pub(super) fn marker(&self) -> String {
        format!("{MAGIC}{self}\n")
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Says what the host is, then becomes the agent where its binary is there, else says so.
///
/// Answers, after the marker: `os=Linux x86_64`, then `run=PATH` and the agent, which writes the marker again
/// before its first frame; or `absent`.
const START: &str = concat!(
    r#"n=@NONCE@;h=@HASH@;printf "\001HVT1 %s\n" $n;echo "os=$(uname -sm)";"#,
    r#"for b in "$XDG_CACHE_HOME" "$HOME/.cache" "$XDG_RUNTIME_DIR";do f="$b/hvtui/agents/$h/hvtui";"#,
    r#"case "$b" in /*) if [ -x "$f" ]&&[ -O "$f" ];then echo "run=$f";"#,
    r#"exec "$f" agent --stdio --nonce $n;fi;;esac;done;echo absent"#,
);

/// Picks a folder that is ours, has room and lets programs run, takes the binary from standard input, compares
/// its hash and only then gives it its name. Two clients at once write the same content under the same name.
///
/// Answers, after the marker: `skip=FOLDER: WHY` for each folder that will not do, then `dir=FOLDER` and `ready`; after
/// the bytes `sum=HASH` and `done`. `fail=WHAT` instead: `hash` (no tool), `folder`, `store`.
const UPLOAD: &str = concat!(
    r#"umask 077;n=@NONCE@;h=@HASH@;k=@KIB@;u="";printf "\001HVT1 %s\n" $n;"#,
    r#"for c in sha256sum shasum openssl;do if command -v $c >/dev/null 2>&1;then u=$c;break;fi;done;"#,
    r#"case "$u" in shasum) u="shasum -a 256";;openssl) u="openssl dgst -sha256";;"") echo fail=hash;exit 0;;esac;"#,
    r#"for b in "$XDG_CACHE_HOME" "$HOME/.cache" "$XDG_RUNTIME_DIR";do w="";case "$b" in /*) ;;*) continue;;esac;"#,
    r#"mkdir -p "$b" 2>/dev/null;d="$b/hvtui/agents/$h";t="$d/.up.$n";"#,
    r#"for p in "$b/hvtui" "$b/hvtui/agents" "$d";do if [ -n "$w" ];then continue;fi;"#,
    r#"if [ -L "$p" ];then w="$p is a symbolic link";"#,
    r#"elif [ -d "$p" ]||mkdir "$p" 2>/dev/null||[ -d "$p" ];then "#,
    r#"if [ -O "$p" ];then chmod 700 "$p";else w="$p belongs to someone else";fi;"#,
    r#"else w="$p can not be made";fi;done;"#,
    r#"if [ -z "$w" ];then set -- $(df -Pk "$d" 2>/dev/null|tail -n 1);"#,
    r#"if [ "$4" -lt $k ] 2>/dev/null;then w="$d has only $4 KiB free, $k are needed";"#,
    r#"elif printf "\043\041/bin/sh\nexit 0\n" 2>/dev/null >"$t"&&chmod 700 "$t";then "#,
    r#""$t" 2>/dev/null||w="$d lets no program run (mounted noexec)";else w="$d can not be written";fi;fi;"#,
    r#"if [ -z "$w" ];then break;fi;rm -f "$t" 2>/dev/null;printf "skip=%s\n" "$w";d="";done;"#,
    r#"if [ -z "$d" ]||[ -n "$w" ];then echo fail=folder;exit 0;fi;"#,
    r#"c(){ rm -f "$t";};trap c 0;trap "exit 1" 1 2 13 15;printf "dir=%s\nready\n" "$d";"#,
    r#"if cat >"$t";then s=$($u <"$t");s=${s#*= };s=${s%% *};printf "sum=%s\n" "$s";"#,
    r#"if [ "$s" = $h ];then if chmod 500 "$t"&&{ sync "$t" 2>/dev/null;mv -f "$t" "$d/hvtui";};"#,
    r#"then sync "$d" 2>/dev/null;echo done;else echo fail=store;fi;fi;else echo fail=store;fi"#,
);

/// The line that starts the agent.
pub(super) fn start_line(binary: &AgentBinary, nonce: &Nonce) -> String {
    line(START, binary, nonce)
}

/// The line that takes in the binary.
pub(super) fn upload_line(binary: &AgentBinary, nonce: &Nonce) -> String {
    line(UPLOAD, binary, nonce)
}

fn line(script: &str, binary: &AgentBinary, nonce: &Nonce) -> String {
    // Room for the folders too.
    let kib = binary.bytes() / 1024 + 64;
    let script = script
        .replace("@NONCE@", &nonce.0)
        .replace("@HASH@", binary.sha256())
        .replace("@KIB@", &kib.to_string());
    format!("exec /bin/sh -c '{script}'")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use super::*;

    /// A program that behaves as the agent does at its start and then echoes.
    const AGENT: &str = "#!/bin/sh\n[ \"$1 $2 $3\" = \"agent --stdio --nonce\" ] || exit 64\n\
                         printf '\\001HVT1 %s\\n' \"$4\"\nexec cat\n";

    struct Home {
        folder: tempfile::TempDir,
        binary: AgentBinary,
    }

    impl Home {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("program");
            std::fs::write(&path, AGENT).unwrap();
            Self { binary: AgentBinary::from_path(&path).unwrap(), folder }
        }

        fn path(&self, below: &str) -> PathBuf {
            self.folder.path().join(below)
        }

        fn installed(&self) -> PathBuf {
            self.path(&format!(".cache/hvtui/agents/{}/hvtui", self.binary.sha256()))
        }

        /// Runs a command with this home and no other cache folder; its whole output as text.
        fn run(&self, command: &mut Command, input: &[u8]) -> String {
            command
                .env_remove("XDG_CACHE_HOME")
                .env_remove("XDG_RUNTIME_DIR")
                .env("HOME", self.folder.path());
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            // A script that refuses early does not read.
            let _ = child.stdin.take().unwrap().write_all(input);
            let output = child.wait_with_output().unwrap();
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        }

        fn upload(&self, shell: &str, nonce: &Nonce, content: &[u8]) -> String {
            self.run(Command::new(shell).args(["-c", &upload_line(&self.binary, nonce)]), content)
        }

        fn start(&self, shell: &str, nonce: &Nonce, input: &[u8]) -> String {
            self.run(Command::new(shell).args(["-c", &start_line(&self.binary, nonce)]), input)
        }
    }

    fn installed(program: &str) -> bool {
        let found = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).exists()));
        if !found {
            assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none(), "{program} is missing");
            eprintln!("skipped: {program} is not installed");
        }
        found
    }

    #[test]
    fn the_lines_hold_nothing_that_a_shell_reads_its_own_way() {
        let home = Home::new();
        let nonce = Nonce::new().unwrap();
        for line in [start_line(&home.binary, &nonce), upload_line(&home.binary, &nonce)] {
            let quoted = line.strip_prefix("exec /bin/sh -c '").unwrap().strip_suffix('\'').unwrap();
            assert!(quoted.bytes().all(|c| (b' '..=b'~').contains(&c)), "{quoted}");
            for never in ["'", "!", "\\\\", "@"] {
                assert!(!quoted.contains(never), "{never} in {quoted}");
            }
        }
    }

    #[test]
    fn every_login_shell_takes_in_the_binary_and_starts_it() {
        for shell in ["sh", "bash", "dash", "zsh", "tcsh", "fish"] {
            if !installed(shell) {
                continue;
            }
            let home = Home::new();
            let nonce = Nonce::new().unwrap();
            let said = home.start(shell, &nonce, b"");
            let marker = nonce.marker();
            assert!(said.contains(&format!("{marker}os=Linux ")), "{shell}: {said}");
            assert!(said.ends_with("\nabsent\n"), "{shell}: {said}");

            let nonce = Nonce::new().unwrap();
            let said = home.upload(shell, &nonce, AGENT.as_bytes());
            assert!(said.contains(&nonce.marker()), "{shell}: {said}");
            assert!(
                said.ends_with(&format!("\nready\nsum={}\ndone\n", home.binary.sha256())),
                "{shell}: {said}"
            );
            let path = home.installed();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o500);
            let files = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
            assert_eq!(files, 1, "{shell}: nothing but the binary is left");

            let nonce = Nonce::new().unwrap();
            let said = home.start(shell, &nonce, b"frames \x00 follow\n");
            let marker = nonce.marker();
            let wanted = format!("run={}\n{marker}frames \0 follow\n", path.display());
            assert!(said.ends_with(&wanted), "{shell}: {said:?}");
        }
    }

    #[test]
    fn a_damaged_upload_leaves_nothing() {
        let home = Home::new();
        let said = home.upload("sh", &Nonce::new().unwrap(), b"something else");
        assert!(said.contains("\nsum=") && !said.contains("\ndone"), "{said}");
        assert_eq!(std::fs::read_dir(home.installed().parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn folders_of_ours_that_are_links_are_refused_and_their_targets_untouched() {
        for planted in ["hvtui", "hvtui/agents"] {
            let home = Home::new();
            let (victim, link) = (home.path("victim"), home.path(".cache").join(planted));
            std::fs::create_dir_all(&victim).unwrap();
            std::fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(&victim, &link).unwrap();
            let said = home.upload("sh", &Nonce::new().unwrap(), AGENT.as_bytes());
            assert!(said.contains("is a symbolic link") && said.ends_with("fail=folder\n"), "{said}");
            assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 0);
        }
    }

    #[test]
    fn the_next_folder_is_taken_where_one_lets_nothing_run_or_has_no_room() {
        for (options, why) in [("noexec", "mounted noexec"), ("size=16k", "KiB free")] {
            let home = Home::new();
            let small = home.path("small");
            std::fs::create_dir(&small).unwrap();
            let mount = format!(
                "mount -t tmpfs -o {options} tmpfs '{0}' && XDG_CACHE_HOME='{0}' && export XDG_CACHE_HOME && {1}",
                small.display(),
                upload_line(&home.binary, &Nonce::new().unwrap())
            );
            let said = home.run(Command::new("unshare").args(["-rm", "sh", "-c", &mount]), AGENT.as_bytes());
            if said.contains("unshare") || said.contains("mount:") {
                assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none(), "no mount namespace: {said}");
                eprintln!("skipped: no mount namespace here: {said}");
                return;
            }
            assert!(said.contains(&format!("skip={}", small.display())) && said.contains(why), "{said}");
            assert!(said.ends_with("\ndone\n") && home.installed().exists(), "{said}");
        }
    }

    /// A folder that has only these programs.
    fn only(home: &Home, programs: &[&str]) -> Option<PathBuf> {
        let folder = home.path(&format!("bin-{}", programs.len()));
        std::fs::create_dir_all(&folder).unwrap();
        for program in programs {
            let path = std::env::split_paths(&std::env::var_os("PATH").unwrap())
                .map(|folder| folder.join(program))
                .find(|path| path.exists());
            let Some(path) = path else {
                eprintln!("skipped: {program} is not installed");
                return None;
            };
            symlink(path, folder.join(program)).unwrap();
        }
        Some(folder)
    }

    #[test]
    fn any_tool_that_hashes_will_do_and_none_is_said() {
        const NEEDED: [&str; 9] = ["uname", "mkdir", "chmod", "df", "tail", "cat", "rm", "mv", "sync"];
        for tool in ["sha256sum", "shasum", "openssl", ""] {
            let home = Home::new();
            let mut programs = NEEDED.to_vec();
            // shasum is a Perl script that names its interpreter through env.
            programs.extend(match tool {
                "" => vec![],
                "shasum" => vec!["shasum", "perl", "env"],
                tool => vec![tool],
            });
            let Some(path) = only(&home, &programs) else { continue };
            let line = upload_line(&home.binary, &Nonce::new().unwrap());
            let said =
                home.run(Command::new("/bin/sh").args(["-c", &line]).env("PATH", path), AGENT.as_bytes());
            let wanted = if tool.is_empty() { "fail=hash\n" } else { "\ndone\n" };
            assert!(said.ends_with(wanted), "{tool}: {said}");
        }
    }

    #[test]
    fn a_binary_of_another_user_is_not_run() {
        let home = Home::new();
        home.upload("sh", &Nonce::new().unwrap(), AGENT.as_bytes());
        if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
            eprintln!("skipped: only root can give files away");
            return;
        }
        std::os::unix::fs::chown(home.installed(), Some(65534), None).unwrap();
        let said = home.start("sh", &Nonce::new().unwrap(), b"");
        assert!(said.ends_with("absent\n"), "{said}");
    }

    #[test]
    fn a_cache_folder_that_is_no_absolute_path_is_passed_over() {
        let home = Home::new();
        let line = upload_line(&home.binary, &Nonce::new().unwrap());
        let mut command = Command::new("sh");
        let command = command.args(["-c", &format!("XDG_CACHE_HOME=here; export XDG_CACHE_HOME; {line}")]);
        let said = home.run(command.current_dir(home.folder.path()), AGENT.as_bytes());
        assert!(said.ends_with("\ndone\n") && home.installed().exists(), "{said}");
        assert!(!Path::new("here").exists() && !home.path("here").exists());
    }
}
