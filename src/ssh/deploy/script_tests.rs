use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;

/// A program that behaves as the agent does at its start and then echoes.
const AGENT: &str = "#!/bin/sh\n[ \"$1 $2 $3\" = \"agent --stdio --nonce\" ] || exit 64\n\
                     printf '\\001HVT1 %s\\n' \"$4\"\nexec cat\n";

#[test]
fn each_start_has_a_nonce_of_its_own() {
    let (one, other) = (Nonce::new().unwrap(), Nonce::new().unwrap());
    assert_ne!(one, other);
    assert_eq!(one.0.len(), 32);
    assert_eq!(one.marker(), format!("{MAGIC}{one}\n"));
}

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
        command.env_remove("XDG_CACHE_HOME").env_remove("XDG_RUNTIME_DIR").env("HOME", self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A script that refuses early does not read.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    fn upload(&self, shell: &str, nonce: &Nonce, content: &[u8]) -> String {
        self.run(Command::new(shell).args(["-c", &self.upload_line(nonce)]), content)
    }

    fn upload_line(&self, nonce: &Nonce) -> String {
        upload_line(&self.binary, None, 1, nonce)
    }

    fn start_line(&self, cache_dir: Option<&str>, from: u32, nonce: &Nonce) -> String {
        let hashes = [("Linux x86_64", "0"), ("Linux aarch64", "0")];
        let hash = |(os, _): (&str, &str)| (os.to_owned(), self.binary.sha256().to_owned());
        start_line(Search { hashes: &hashes.map(hash), cache_dir, from }, nonce)
    }

    fn start(&self, shell: &str, nonce: &Nonce, input: &[u8]) -> String {
        self.run(Command::new(shell).args(["-c", &self.start_line(None, 1, nonce)]), input)
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
    let hostile = "~/a b'\"$(id)`!\\%s%\n\u{e4}*@FROM@";
    for line in [
        home.start_line(Some(hostile), 1, &nonce),
        upload_line(&home.binary, Some(hostile), 2, &nonce),
        start_installed_line(hostile, &nonce),
        quarantine_line(hostile, "0123abcd", &nonce),
    ] {
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
        assert!(said.ends_with(&format!("\nready\nsum={}\ndone\n", home.binary.sha256())), "{shell}: {said}");
        let path = home.installed();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o500);
        let files = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(files, 1, "{shell}: nothing but the binary is left");

        let nonce = Nonce::new().unwrap();
        let said = home.start(shell, &nonce, b"frames \x00 follow\n");
        let marker = nonce.marker();
        let wanted = format!("at=2\nrun={}\n{marker}frames \0 follow\n", path.display());
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
    for (options, why) in
        [("noexec", "mounted noexec"), ("size=16k", "KiB free"), ("ro", "Read-only file system")]
    {
        let home = Home::new();
        let small = home.path("small");
        std::fs::create_dir(&small).unwrap();
        let mount = format!(
            "mount -t tmpfs -o {options} tmpfs '{0}' && XDG_CACHE_HOME='{0}' && export XDG_CACHE_HOME && {1}",
            small.display(),
            home.upload_line(&Nonce::new().unwrap())
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
        if !installed(program) {
            return None;
        }
        let path = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|folder| folder.join(program))
            .find(|path| path.exists());
        symlink(path.unwrap(), folder.join(program)).unwrap();
    }
    Some(folder)
}

#[test]
fn any_tool_that_hashes_will_do_and_none_is_said() {
    const NEEDED: [&str; 10] = ["uname", "mkdir", "chmod", "df", "tail", "cat", "rm", "mv", "ln", "ls"];
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
        let line = home.upload_line(&Nonce::new().unwrap());
        let said = home.run(Command::new("/bin/sh").args(["-c", &line]).env("PATH", path), AGENT.as_bytes());
        let wanted = if tool.is_empty() { "fail=hash\n" } else { "\ndone\n" };
        assert!(said.ends_with(wanted), "{tool}: {said}");
    }
}

/// Gives another user the right to write to a folder by an access list, as `setfacl -m u:65534:rwx` does.
fn list_another_user(folder: &Path) {
    // version, then user, user 65534, group, mask and others: tag, rights, number
    let all = u32::MAX;
    let entries = [(1_u16, 7_u16, all), (2, 7, 65534), (4, 5, all), (0x10, 7, all), (0x20, 5, all)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, number) in entries {
        list.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        list.extend(number.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(folder, "system.posix_acl_access", &list, flags).unwrap();
}

#[test]
fn a_folder_in_which_others_could_put_another_program_is_passed_over() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give folders away");
        assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none(), "needs root");
        return;
    }
    let group = "can be written to by others: chmod go-w";
    for (uid, gid, mode, why) in [
        (0, 0, 0o755, ""),
        (0, 0, 0o775, ""), // our own group, as under umask 002
        (0, 100, 0o775, group),
        (0, 0, 0o777, group),
        (0, 0, 0o1777, ""),
        (65534, 65534, 0o755, "belongs to uid 65534 (mode drwxr-xr-x)"),
        (65534, 65534, 0o1777, "belongs to uid 65534"),
        (0, 0, 0o4000, group), // with an access list
    ] {
        let home = Home::new();
        let (above, folder) = (home.path("a b"), home.path("a b/c"));
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::chown(&above, Some(uid), Some(gid)).unwrap();
        if mode == 0o4000 {
            list_another_user(&above);
        } else {
            std::fs::set_permissions(&above, PermissionsExt::from_mode(mode)).unwrap();
        }
        symlink(&folder, home.path("link")).unwrap();
        for cache in [&above, &folder, &home.path("link")] {
            // what is there already is not started either
            let real = cache.canonicalize().unwrap().join("hvtui/agents").join(home.binary.sha256());
            std::fs::create_dir_all(&real).unwrap();
            std::fs::copy(home.binary.path(), real.join("hvtui")).unwrap();
            std::fs::set_permissions(real.join("hvtui"), PermissionsExt::from_mode(0o500)).unwrap();
            let run = |line: &str| {
                let line = format!("XDG_CACHE_HOME='{}'; export XDG_CACHE_HOME; {line}", cache.display());
                home.run(Command::new("sh").args(["-c", &line]), AGENT.as_bytes())
            };
            let nonce = Nonce::new().unwrap();
            let started = run(&home.start_line(None, 1, &nonce));
            let taken = run(&home.upload_line(&nonce));
            let told = format!("skip={} ", above.display());
            if why.is_empty() {
                assert!(
                    started.contains(&format!("\nrun={}/hvtui\n", real.display())),
                    "{mode:o}: {started}"
                );
                assert!(taken.contains(&format!("dir={}\n", real.display())), "{mode:o}: {taken}");
            } else {
                assert!(started.contains(&told) && started.contains(why), "{mode:o}: {started}");
                assert!(!started.contains(&format!("run={}", real.display())), "{mode:o}: {started}");
                assert!(taken.contains(&told) && taken.contains(why), "{mode:o}: {taken}");
            }
            std::fs::remove_dir_all(cache.canonicalize().unwrap().join("hvtui")).unwrap();
        }
    }
}

#[test]
fn a_binary_of_another_user_is_not_run() {
    let home = Home::new();
    home.upload("sh", &Nonce::new().unwrap(), AGENT.as_bytes());
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("skipped: only root can give files away");
        assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none(), "needs root");
        return;
    }
    std::os::unix::fs::chown(home.installed(), Some(65534), None).unwrap();
    let said = home.start("sh", &Nonce::new().unwrap(), b"");
    assert!(said.ends_with("absent\n"), "{said}");
}

#[test]
fn a_folder_of_the_users_choice_is_the_last_whatever_its_name() {
    let home = Home::new();
    // Neither of the usual folders will do.
    std::fs::write(home.path(".cache"), "in the way").unwrap();
    let chosen = "~/my 'own' $(id) \\cache%s\u{e4}!";
    for shell in ["sh", "bash", "tcsh", "fish"] {
        if !installed(shell) {
            continue;
        }
        let line = upload_line(&home.binary, Some(chosen), 1, &Nonce::new().unwrap());
        let said = home.run(Command::new(shell).args(["-c", &line]), AGENT.as_bytes());
        assert!(said.contains("skip=") && said.ends_with("\ndone\n"), "{shell}: {said}");
        let path = home.path(&chosen[2..]).join("hvtui/agents").join(home.binary.sha256()).join("hvtui");
        let nonce = Nonce::new().unwrap();
        let line = home.start_line(Some(chosen), 1, &nonce);
        let said = home.run(Command::new(shell).args(["-c", &line]), b"x");
        let wanted = format!("at=4\nrun={}\n{}x", path.display(), nonce.marker());
        assert!(said.ends_with(&wanted), "{shell}: {said}");
        let line = home.start_line(Some(chosen), 5, &nonce);
        let said = home.run(Command::new(shell).args(["-c", &line]), b"x");
        assert!(said.ends_with("\nabsent\n"), "{shell}: {said}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn an_installed_binary_is_started_where_it_is() {
    let home = Home::new();
    let path = home.path("a b");
    let line = |nonce: &Nonce| start_installed_line("~/a b", nonce);
    let nonce = Nonce::new().unwrap();
    let said = home.run(Command::new("sh").args(["-c", &line(&nonce)]), b"x");
    assert!(said.ends_with("\nabsent\n"), "{said}");
    std::fs::copy(home.binary.path(), &path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    let said = home.run(Command::new("sh").args(["-c", &line(&nonce)]), b"x");
    assert!(said.ends_with(&format!("\nrun={}\n{}x", path.display(), nonce.marker())), "{said}");
}

#[test]
fn who_is_first_stays_and_a_damaged_file_goes() {
    let home = Home::new();
    let upload = || home.upload("sh", &Nonce::new().unwrap(), AGENT.as_bytes());
    let inode = || std::fs::metadata(home.installed()).unwrap().ino();
    assert!(upload().ends_with("\ndone\n"));
    let first = inode();
    assert!(upload().ends_with("\ndone\n"));
    assert_eq!(inode(), first, "a binary that may be running was replaced");
    let planted = |content: &str| {
        std::fs::remove_file(home.installed()).unwrap();
        std::fs::write(home.installed(), content).unwrap();
    };
    for (content, mode) in [("something else", 0o500), (AGENT, 0o400)] {
        planted(content);
        std::fs::set_permissions(home.installed(), PermissionsExt::from_mode(mode)).unwrap();
        assert!(upload().ends_with("\ndone\n"));
        assert_eq!(std::fs::read_to_string(home.installed()).unwrap(), AGENT);
        assert_eq!(std::fs::metadata(home.installed()).unwrap().permissions().mode() & 0o777, 0o500);
    }
}

#[test]
fn what_an_upload_left_that_was_cut_off_goes_with_the_next_one() {
    let home = Home::new();
    let folder = home.installed().parent().unwrap().to_owned();
    let nonce = Nonce::new().unwrap();
    let mut cut = Command::new("sh");
    cut.args(["-c", &home.upload_line(&nonce)]).env("HOME", home.folder.path());
    cut.env_remove("XDG_CACHE_HOME").env_remove("XDG_RUNTIME_DIR");
    let mut cut = cut.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(cut.stdout.take().unwrap());
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    }
    cut.stdin.as_mut().unwrap().write_all(b"#!/bin/sh").unwrap();
    let left = || {
        let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| is_upload(&name.to_string_lossy())).count()
    };
    // A second client while the first one is at it leaves its file alone.
    assert!(home.upload("sh", &Nonce::new().unwrap(), AGENT.as_bytes()).ends_with("\ndone\n"));
    assert_eq!(left(), 1);
    cut.kill().unwrap();
    cut.wait().unwrap();
    assert_eq!(left(), 1, "none could clean up");
    assert!(home.upload("sh", &Nonce::new().unwrap(), AGENT.as_bytes()).ends_with("\ndone\n"));
    assert_eq!(left(), 0);
}

#[test]
fn a_wrong_binary_is_put_aside() {
    let home = Home::new();
    home.upload("sh", &Nonce::new().unwrap(), AGENT.as_bytes());
    let path = home.installed().display().to_string();
    let put_aside = || quarantine_line(&path, "0123abcd", &Nonce::new().unwrap());
    let said = home.run(Command::new("sh").args(["-c", &put_aside()]), b"");
    assert!(said.ends_with(&format!("\nmoved={path}.bad-0123abcd\n")), "{said}");
    assert!(!home.installed().exists());
    let said = home.run(Command::new("sh").args(["-c", &put_aside()]), b"");
    assert!(said.ends_with("fail=No such file or directory\n"), "{said}");
}

#[test]
fn a_cache_folder_that_is_no_absolute_path_is_passed_over() {
    let home = Home::new();
    let line = home.upload_line(&Nonce::new().unwrap());
    let mut command = Command::new("sh");
    let command = command.args(["-c", &format!("XDG_CACHE_HOME=here; export XDG_CACHE_HOME; {line}")]);
    let said = home.run(command.current_dir(home.folder.path()), AGENT.as_bytes());
    assert!(said.ends_with("\ndone\n") && home.installed().exists(), "{said}");
    assert!(!Path::new("here").exists() && !home.path("here").exists());
}
