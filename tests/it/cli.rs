//! The real binary: exit codes, help, and the commands that need no host.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::in_time::OutputInTime;

struct Ran {
    code: i32,
    out: String,
    err: String,
}

/// Runs `hvtui` in a directory of its own, as a user with an empty home there.
fn hvtui_in(dir: &Path, args: &[&str]) -> Ran {
    let output: Output = Command::new(crate::common::program::hvtui())
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("LANG", "C.UTF-8")
        .env("HOME", dir)
        .stdin(Stdio::null())
        .output_in_time()
        .unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn hvtui(args: &[&str]) -> Ran {
    hvtui_in(tempfile::tempdir().unwrap().path(), args)
}

#[test]
fn the_demo_refuses_what_is_for_real_hosts() {
    let meant = [&["demo", "--hosts", "none.toml"][..], &["--no-install", "demo"], &["demo", "--no-install"]];
    for args in meant {
        let ran = hvtui(args);
        assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{args:?}");
        assert!(ran.err.contains("the demo has hosts of its own"), "{args:?}: {}", ran.err);
    }
    let ran = hvtui(&["demo", "--size", "2"]);
    assert!(ran.err.contains("the demo is for looking at"), "{}", ran.err);
}

#[test]
fn without_a_terminal_there_is_no_ui() {
    let ran = hvtui(&[]);
    assert_eq!((ran.code, ran.out.as_str()), (64, ""));
    insta::assert_snapshot!(ran.err, @"hvtui: standard output is not a terminal, and the UI needs one: use `hvtui watch --once` to see the hosts, or `hvtui run` to launch");
}

#[test]
fn marks_are_ascii_where_the_locale_has_no_utf_8_and_json_never_changes() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("h…é.toml"), "[[host]]\nname = \"a\"\naddress = \"local\"\n").unwrap();
    let hosts = |locale: &str, args: &[&str]| {
        let mut command = Command::new(crate::common::program::hvtui());
        command.args(["--hosts", "h…é.toml", "hosts"]).args(args).current_dir(dir.path()).env_clear();
        command.env("HOME", dir.path()).env("LC_ALL", locale).stdin(Stdio::null());
        String::from_utf8(command.output_in_time().unwrap().stdout).unwrap()
    };
    let (utf8, ascii) = (hosts("C.UTF-8", &[]), hosts("C", &[]));
    assert!(utf8.contains('–') && utf8.contains("h…é.toml"), "{utf8}");
    assert_eq!(ascii, utf8.replace('–', "-").replace('…', "~"), "letters of names stay");
    let json = hosts("C", &["--json"]);
    assert!(json.contains("h…é.toml"), "{json}");
    assert_eq!(json, hosts("C.UTF-8", &["--json"]));
}

#[test]
fn usage_errors_exit_64_and_help_0() {
    for args in [
        &["wach"][..],
        &["run", "-np", "x", "--", "true"],
        &["run", "-np"],
        &["run", "-H", "a:1", "--gpus", "a:0", "--", "true"],
        &["watch", "--interval", "0"],
        &["train", "nothing"],
        &["--no-such"],
        &["export", "7QK2"],
    ] {
        let ran = hvtui(args);
        assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("error: "), "{}", ran.err);
    }
    for args in [&["--help"][..], &["--version"], &["run", "--help"]] {
        let ran = hvtui(args);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
    }
    assert_eq!(hvtui(&["--version"]).out, format!("hvtui {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_is_for_people() {
    insta::assert_snapshot!("help", hvtui(&["--help"]).out);
    for command in [
        "watch",
        "pick",
        "run",
        "runs",
        "attach",
        "logs",
        "trace",
        "stop",
        "replay",
        "report",
        "diff",
        "export",
        "import",
        "train",
        "bench",
        "hosts",
        "config",
        "completions",
        "man",
    ] {
        let ran = hvtui(&[command, "--help"]);
        assert!(ran.out.contains("Example"), "{command} has an example");
        insta::assert_snapshot!(format!("help_{command}"), ran.out);
    }
}

#[test]
fn roles_are_hidden_from_help() {
    let help = hvtui(&["--help"]).out + &hvtui(&["man"]).out + &hvtui(&["run", "--help"]).out;
    for word in ["agent", "supervise", "rank-wrap", "stray"] {
        assert!(!help.lines().any(|line| line.split_whitespace().next() == Some(word)), "{word}");
    }
    assert!(!help.contains("STRAY"));
}

#[test]
fn the_manual_page_is_one_for_man() {
    let page = hvtui(&["man"]).out;
    insta::assert_snapshot!("man", page);
}

#[test]
fn completions_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = hvtui(&["completions", shell]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.out.contains("hvtui") && ran.out.contains("HVTUI_COMPLETE"), "{shell}");
    }
}

/// What a real shell offers for a line in `home`, as it would be shown; `None` where there is no such shell.
fn offered(home: &Path, shell: &str, line: &str) -> Option<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let script = match shell {
        "bash" => format!(
            "source <(hvtui completions bash)
             COMP_WORDS=({}) COMP_CWORD={} COMP_TYPE=9
             _clap_complete_hvtui hvtui \"${{COMP_WORDS[COMP_CWORD]}}\" x
             printf '%s\n' \"${{COMPREPLY[@]}}\"",
            words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
            words.len() - 1
        ),
        _ => format!("hvtui completions fish | source; complete -C '{line}'"),
    };
    let path = Path::new(crate::common::program::hvtui()).parent().unwrap();
    let mut command = Command::new(shell);
    command.args(["-c", &script]).current_dir(home).env_clear().env("HOME", home).stdin(Stdio::null());
    command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
    match command.output_in_time() {
        Ok(ran) => {
            assert!(ran.status.success(), "{shell}, {line}: {ran:?}");
            Some(String::from_utf8(ran.stdout).unwrap())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{shell}: {error}"),
    }
}

#[test]
fn a_shell_offers_hosts_recipes_runs_checks_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    let hosts = "[[host]]\nname = \"gpu-a\"\naddress = \"local\"\nslots = 2\n
                 [[host]]\nname = \"gpu-b\"\naddress = \"192.0.2.1\"\n
                 [[recipe]]\nname = \"digits\"\ncommand = \"hvtui train digits\"\nnp = 2\n";
    std::fs::write(home.join("hosts.toml"), hosts).unwrap();
    std::fs::write(home.join("train.py"), "").unwrap();
    let ran = hvtui_in(home, &["run", "-H", "gpu-a:1", "--name", "sweep-7", "--", "true"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let shells: Vec<&str> =
        ["bash", "fish"].into_iter().filter(|shell| offered(home, shell, "hvtui ").is_some()).collect();
    assert!(shells.contains(&"bash"));
    for shell in shells {
        let offered = |line: &str| -> Vec<String> {
            let text = offered(home, shell, line).unwrap();
            let words = text.lines().filter_map(|line| line.split('\t').next());
            let words = words.map(|word| word.trim().to_owned());
            words.filter(|word| !word.is_empty() && !word.starts_with('-')).collect()
        };
        assert_eq!(offered("hvtui run -H gpu"), ["gpu-a", "gpu-b"], "{shell}");
        assert_eq!(offered("hvtui run -H gpu-a,"), ["gpu-a,gpu-b"], "{shell}: each once");
        assert_eq!(offered("hvtui run --recipe d"), ["digits"], "{shell}");
        assert_eq!(offered("hvtui logs "), ["last", "sweep-7"], "{shell}");
        assert_eq!(offered("hvtui report sw"), ["sweep-7"], "{shell}");
        assert_eq!(offered("hvtui doctor --only shm,dri"), ["shm,driver"], "{shell}");
        assert_eq!(offered("hvtui run -- python3 tr"), ["train.py"], "{shell}");
        assert_eq!(offered("hvtui runs pr"), ["prune"], "{shell}");
        // a hosts file that can't be read offers nothing, and says nothing into the line
        assert_eq!(offered("hvtui --hosts absent.toml run -H gpu").len(), 0, "{shell}");
    }
}

#[test]
fn the_template_is_a_hosts_file_that_works() {
    let dir = tempfile::tempdir().unwrap();
    let template = hvtui(&["config", "template"]);
    assert_eq!(template.code, 0);
    std::fs::write(dir.path().join("hosts.toml"), &template.out).unwrap();
    let ran = hvtui_in(dir.path(), &["hosts"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    insta::assert_snapshot!(ran.out, @r"
    ./hosts.toml
    HOST   ADDRESS  SLOTS  INTERFACE  LABELS
    local  local    auto   –
    ");
}

#[test]
fn hosts_are_found_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let list = |args: &[&str]| hvtui_in(dir.path(), args).out;
    assert!(list(&["hosts", "list"]).starts_with("no hosts file: this machine alone\n"));
    let folder = dir.path().join(".config/hvtui");
    std::fs::create_dir_all(&folder).unwrap();
    let host = |name: &str| {
        format!(
            "[[host]]\nname = \"{name}\"\naddress = \"10.0.0.1\"\nuser = \"ml\"\nport = 2222\nlabels = [\"h200\", \"rack 3\"]\n"
        )
    };
    std::fs::write(folder.join("hosts.toml"), host("users")).unwrap();
    assert!(list(&["hosts"]).contains("\nusers  ml@10.0.0.1:2222  auto   –          h200, rack 3\n"));
    std::fs::write(dir.path().join("hosts.toml"), host("here")).unwrap();
    assert!(list(&["hosts"]).contains("\nhere "));
    std::fs::write(dir.path().join("named.toml"), host("named")).unwrap();
    assert!(list(&["hosts", "--hosts", "named.toml"]).contains("\nnamed "));
    assert!(list(&["--hosts", "named.toml", "hosts", "list"]).contains("\nnamed "));
}

#[test]
fn a_bad_hosts_file_exits_65_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hosts.toml"), "[[host]]\nname = \"a\"\naddress = \"x\"\nport = 70000\n")
        .unwrap();
    let ran = hvtui_in(dir.path(), &["hosts"]);
    assert_eq!((ran.code, ran.out.as_str()), (65, ""));
    insta::assert_snapshot!(ran.err, @r"
    hvtui: port 70000 is no TCP port
     --> ./hosts.toml:4:8
      |
    4 | port = 70000
      |        ^^^^^
      |
      = help: write a number from 1 to 65535; ssh's usual port is 22
    ");
    let ran = hvtui_in(dir.path(), &["--hosts", "none.toml", "hosts"]);
    assert_eq!(ran.code, 74);
    insta::assert_snapshot!(ran.err, @"hvtui: can't read hosts file none.toml: No such file or directory (os error 2); a commented one to begin with: hvtui config template > none.toml");
}

#[test]
fn the_log_goes_into_a_file_and_never_to_the_terminal() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let logged = |filter: &str| {
        Command::new(crate::common::program::hvtui())
            .arg("hosts")
            .current_dir(dir.path())
            .env_clear()
            .envs([("HOME", dir.path().to_str().unwrap()), ("HVTUI_LOG", filter)])
            .output_in_time()
            .unwrap()
    };
    let log = dir.path().join(".local/state/hvtui/hvtui.log");
    assert!(logged("").status.success() && !log.exists(), "nothing is logged unasked");
    let output = logged("debug");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    assert!(std::fs::read_to_string(&log).unwrap().contains("started"));
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    let bad = logged("hvtui=nonsense");
    assert_eq!(bad.status.code(), Some(64));
    assert!(String::from_utf8(bad.stderr).unwrap().starts_with("hvtui: HVTUI_LOG=hvtui=nonsense: "));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = Command::new(crate::common::program::hvtui())
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.output_in_time().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
