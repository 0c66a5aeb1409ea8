//! The hosts file: what a person may write, and what each fault looks like.

use std::path::{Path, PathBuf};

use hvtui::config::{self, Address, ConfigError, HostsFile, RecipeWhere, SlotCount, Source, Transport};
use hvtui::domain::alerts::{AlertRules, HeatRule};
use hvtui::domain::occupancy::FreeMemory;
use hvtui::domain::run::{JobKind, MinFree};

/// Loads `text` as hosts.toml of an empty directory, which is also the home; errors as they are shown, with
/// the directory's path left out.
fn load(text: &str) -> Result<HostsFile, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hosts.toml");
    std::fs::write(&path, text).unwrap();
    std::fs::write(dir.path().join("key"), "a private key").unwrap();
    let source = config::find(None, dir.path(), Path::new("/nowhere"));
    assert_eq!(source, Source::File(path));
    config::load(&source, dir.path()).map_err(|error| shown(&error, dir.path()))
}

fn shown(error: &ConfigError, dir: &Path) -> String {
    error.render(false).replace(&format!("{}/", dir.display()), "")
}

fn fault(text: &str) -> String {
    load(text).unwrap_err()
}

/// A host `a` with one more line.
fn fault_of(line: &str) -> String {
    fault(&format!("[[host]]\nname = \"a\"\naddress = \"10.0.0.11\"\n{line}\n"))
}

#[test]
fn a_host_that_is_written_as_a_single_table_is_told_the_brackets() {
    insta::assert_snapshot!(fault("# mine\n[host]\nname = \"a\"\naddress = \"10.0.0.11\"\n"), @r"
    hvtui: there may be several hosts, and `[host]` is a single table
     --> hosts.toml:2:1
      |
    2 | [host]
      | ^^^^^^
      |
      = help: write [[host]]
    ");
    assert!(fault("[recipe] # x\nname = \"a\"\n").contains("help: write [[recipe]]"));
}

#[test]
fn views_are_filters_with_names() {
    let file = load(
        "[[host]]\nname = \"a\"\naddress = \"local\"\n[views]\n\"free h200\" = \"free & model~h200\"\nbroken = '!ok | temp>85'\n",
    );
    let views = file.unwrap().views;
    let views: Vec<String> = views.iter().map(|view| format!("{}: {}", view.name, view.filter)).collect();
    assert_eq!(views, ["free h200: free & model~h200", "broken: !ok | temp>85"], "in the file's order");
    insta::assert_snapshot!(fault_of("[views]\nidle = \"utl<5\"\n\"\" = \"free\""), @r#"
    hvtui: `utl<5` is not a filter
     --> hosts.toml:5:8
      |
    5 | idle = "utl<5"
      |        ^^^^^^^
      |
      = help: unknown field 'utl': did you mean util?
    hvtui: the name of a view is empty, longer than 40, or holds control characters
     --> hosts.toml:6:1
      |
    6 | "" = "free"
      | ^^
      = help: shorten it
    "#);
}

#[test]
fn the_template_works_as_it_stands() {
    let file = load(config::template()).unwrap();
    assert_eq!(file.hosts, [config::HostConfig::this_machine()]);
    assert!(file.recipes.is_empty());
}

#[test]
fn every_line_of_the_template_works_uncommented() {
    let text = config::template();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(".ssh")).unwrap();
    std::fs::write(dir.path().join(".ssh/id_ed25519"), "a private key").unwrap();
    let is_code = |line: &str| line.starts_with("# [") || line.split_whitespace().nth(2) == Some("=");
    let lines: Vec<&str> =
        text.lines().map(|line| if is_code(line) { line.trim_start_matches("# ") } else { line }).collect();
    let hash = "0123456789012345678901234567890123456789abc";
    let text = lines.join("\n").replace("SHA256:…", &format!("SHA256:{hash}"));
    let path = dir.path().join("hosts.toml");
    std::fs::write(&path, text).unwrap();
    let file =
        config::load(&Source::File(path), dir.path()).unwrap_or_else(|e| panic!("{}", e.render(false)));
    assert_eq!(file.hosts.len(), 2);
    let host = &file.hosts[1];
    assert_eq!(host.identity, Some(dir.path().join(".ssh/id_ed25519")));
    assert_eq!((host.user.as_deref(), host.port), (Some("ml"), Some(2222)));
    let env: Vec<&str> = host.env.keys().map(String::as_str).collect();
    assert_eq!(env, ["NCCL_DEBUG", "NCCL_SOCKET_IFNAME"], "a host's variables join the defaults'");
    assert_eq!(file.recipes[0].command, ["hvtui", "train", "digits"]);
}

#[test]
fn a_host_counts_before_the_defaults() {
    let file = load(
        r#"
        [defaults]
        user = "ml"
        port = 2222
        slots = 4
        env = { A = "default", N = 1, B = true }
        workdir = "~/train"
        spool_cap = "1G"
        min_free = "10G"
        free_memory = "2G"
        identity = "~/key"
        [[host]]
        name = "a"
        address = "fd00::11"
        user = "root"
        slots = "auto"
        env = { A = "own" }
        spool_cap = "64M"
        free_memory = "8%"
        [[host]]
        name = "here"
        address = "local"
        [[recipe]]
        name = "digits"
        kind = "native"
        command = ["hvtui", "train", "digits"]
        picks = ["a:0", "a:GPU-3f2a"]
        [[recipe]]
        name = "any"
        command = "python 'my job.py'"
        "#,
    )
    .unwrap();
    let [a, here] = &file.hosts[..] else { panic!("two hosts") };
    assert_eq!((a.user.as_deref(), a.port, a.slots), (Some("root"), Some(2222), SlotCount::Auto));
    assert_eq!(a.address, Address::Ssh("fd00::11".to_owned()));
    assert_eq!((a.env["A"].as_str(), a.env["N"].as_str(), a.env["B"].as_str()), ("own", "1", "true"));
    assert_eq!(a.workdir.as_deref(), Some("~/train"));
    assert!(a.identity.as_ref().is_some_and(|path| path.is_absolute() && path.ends_with("key")));
    assert_eq!((a.spool.cap, here.spool.cap), (64 << 20, 1 << 30));
    assert_eq!((a.free_memory, here.free_memory), (FreeMemory::Percent(8), FreeMemory::Bytes(2 << 30)));
    assert_eq!(a.spool.min_free, MinFree::Bytes(10 << 30));
    // Defaults about ssh are not for this machine.
    assert_eq!((&here.user, here.port, &here.identity), (&None, None, &None));
    assert_eq!((here.slots, here.is_local()), (SlotCount::Cpus(4), true));
    assert!(matches!(&file.recipes[0].place, RecipeWhere::Picks(picks) if picks.len() == 2));
    assert_eq!(file.recipes[0].kind, Some(JobKind::Native));
    assert_eq!(file.recipes[1].command, ["python", "my job.py"]);
    assert_eq!(file.recipes[1].place, RecipeWhere::Count(None));
}

#[test]
fn the_file_that_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (cwd, folder) = (dir.path().join("cwd"), dir.path().join("config"));
    std::fs::create_dir_all(&cwd).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    assert_eq!(config::find(None, &cwd, &folder), Source::ThisMachine);
    let alone = config::load(&Source::ThisMachine, dir.path()).unwrap();
    assert_eq!(alone.hosts, [config::HostConfig::this_machine()]);
    std::fs::write(folder.join("hosts.toml"), "").unwrap();
    assert_eq!(config::find(None, &cwd, &folder), Source::File(folder.join("hosts.toml")));
    std::fs::write(cwd.join("hosts.toml"), "").unwrap();
    assert_eq!(config::find(None, &cwd, &folder), Source::File(cwd.join("hosts.toml")));
    let explicit = PathBuf::from("/not/there.toml");
    assert_eq!(config::find(Some(&explicit), &cwd, &folder), Source::File(explicit));
}

#[test]
fn an_unreadable_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = config::load(&Source::File(dir.path().join("hosts.toml")), dir.path()).unwrap_err();
    insta::assert_snapshot!(shown(&missing, dir.path()), @"hvtui: can't read hosts file hosts.toml: No such file or directory (os error 2); a commented one to begin with: hvtui config template > hosts.toml");
    std::fs::create_dir(dir.path().join("hosts.toml")).unwrap();
    let folder = config::load(&Source::File(dir.path().join("hosts.toml")), dir.path()).unwrap_err();
    insta::assert_snapshot!(shown(&folder, dir.path()), @"hvtui: can't read hosts file hosts.toml: Is a directory (os error 21)");
    let binary = dir.path().join("binary.toml");
    std::fs::write(&binary, b"# ok\n\xff\xfe").unwrap();
    let binary = config::load(&Source::File(binary), dir.path()).unwrap_err();
    insta::assert_snapshot!(shown(&binary, dir.path()), @"hvtui: hosts file binary.toml is not UTF-8 text from line 2 on");
}

#[test]
fn an_unknown_key_names_the_one_that_was_meant() {
    insta::assert_snapshot!("unknown_key", fault_of("prot = 22"));
    insta::assert_snapshot!("unknown_table", fault("[[hosts]]\nname = \"a\"\n"));
}

#[test]
fn no_toml_at_all() {
    insta::assert_snapshot!("no_toml", fault("[[host]]\nname = a\n"));
    insta::assert_snapshot!("key_twice", fault_of("name = \"b\""));
    insta::assert_snapshot!("wrong_type", fault_of("user = 7"));
}

#[test]
fn a_duplicate_host_shows_both_places() {
    let text =
        "[[host]]\nname = \"a\"\naddress = \"local\"\n\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\n";
    insta::assert_snapshot!("duplicate_host", fault(text));
}

#[test]
fn a_bad_port_is_refused() {
    for (name, line) in [
        ("zero", "port = 0"),
        ("high", "port = 70000"),
        ("text", "port = \"ssh\""),
        ("negative", "port = -1"),
    ] {
        insta::assert_snapshot!(format!("port_{name}"), fault_of(line));
    }
}

#[test]
fn a_bad_default_is_told_once() {
    let text = "[defaults]\nport = 0\n[[host]]\nname = \"a\"\naddress = \"x\"\n[[host]]\nname = \"b\"\naddress = \"y\"\n";
    assert_eq!(fault(text).matches("port 0 is no TCP port").count(), 1);
    let local = "[defaults]\nport = 0\n[[host]]\nname = \"a\"\naddress = \"local\"\n";
    assert!(fault(local).contains("port 0 is no TCP port"), "also where no host uses it");
}

#[test]
fn all_faults_are_told_together() {
    insta::assert_snapshot!(
        "many_faults",
        fault(
            "[defaults]\nname = \"x\"\n\n[[host]]\nname = \"-a\"\naddress = \"li@b:22\"\nslots = 0\n\n[[host]]\nlabels = [\"\"]\n"
        )
    );
}

#[test]
fn names_and_addresses_are_plain() {
    for name in ["", "-a", "a b", "a/b", "..", "é"] {
        let text = fault(&format!("[[host]]\nname = \"{name}\"\naddress = \"local\"\n"));
        assert!(text.contains("host name") && text.contains("use 1 to 64 of letters"), "{text}");
    }
    for (address, words) in [
        ("li@10.0.0.1", "write address = \"10.0.0.1\" and user = \"li\""),
        ("10.0.0.1:22", "write address = \"10.0.0.1\" and port = 22"),
        ("[::1]", "without brackets"),
        ("", "is no name and no IP address"),
        ("-oProxyCommand=x", "is no name and no IP address"),
        ("a b", "is no name and no IP address"),
        ("a:b:c", "is no name and no IP address"),
    ] {
        let text = fault(&format!("[[host]]\nname = \"a\"\naddress = \"{address}\"\n"));
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn single_values_have_rules() {
    for (name, line) in [
        ("user", "user = \"-l root\""),
        ("slots_zero", "slots = 0"),
        ("slots_word", "slots = \"many\""),
        ("fingerprint", "fingerprint = \"MD5:aa:bb\""),
        ("host_keys", "host_keys = \"no\""),
        ("interface", "interface = \"eth0:1\""),
        ("identity_missing", "identity = \"~/.ssh/id_none\""),
        ("identity_public", "identity = \"~/key.pub\""),
        ("identity_relative", "identity = \"key\""),
        ("workdir", "workdir = \"train\""),
        ("spool_cap", "spool_cap = \"10\""),
        ("min_free", "min_free = \"100%\""),
        ("free_memory", "free_memory = \"some\""),
        ("max_silence", "max_silence = \"soon\""),
        ("env_reserved", "env = { RANK = \"1\" }"),
        ("env_name", "env = { \"A B\" = \"1\" }"),
        ("env_value", "env = { A = [1] }"),
    ] {
        insta::assert_snapshot!(format!("rule_{name}"), fault_of(line));
    }
}

#[test]
fn what_can_not_be_meant_is_refused() {
    let text = fault_of("container = \"bin/docker\"");
    assert!(
        text.contains("container = \"bin/docker\" is no program") && text.contains("hosts.toml:4:"),
        "{text}"
    );
    assert_eq!(
        load("[defaults]\ncontainer = \"podman\"\n[[host]]\nname = \"a\"\naddress = \"x\"\n").unwrap().hosts
            [0]
        .container
        .as_deref(),
        Some("podman")
    );
    let local = fault("[[host]]\nname = \"a\"\naddress = \"local\"\nport = 22\n");
    insta::assert_snapshot!("local_port", local);
}

#[test]
fn the_way_to_a_host_is_checked_and_its_hops_are_known() {
    let good = "[defaults]\njump = \"b\"\n[[host]]\nname = \"a\"\naddress = \"x\"\ntransport = \"openssh\"\n\
                [[host]]\nname = \"b\"\naddress = \"y\"\njump = \"li@c:22,[::1]:9,z\"\n\
                [[host]]\nname = \"c\"\naddress = \"z\"\njump = \"none\"\n";
    let file = load(good).unwrap();
    let hops =
        |index: usize| file.hosts[index].jump_hosts.iter().map(|host| host.id.as_str()).collect::<Vec<_>>();
    assert_eq!((hops(0), hops(1), hops(2)), (vec!["b", "c"], vec!["c"], vec![]));
    assert_eq!(file.hosts[0].transport, Transport::OpenSsh);
    for line in [
        "jump = \"\"",
        "jump = \"a,,b\"",
        "jump = \"-oX=y\"",
        "jump = \"a:0\"",
        "jump = \"a b\"",
        "jump = \"@a\"",
    ] {
        let text = fault_of(line);
        assert!(text.contains("is no list of hosts") && text.contains("hosts.toml:4:"), "{text}");
    }
    assert!(fault_of("transport = \"telnet\"").contains("unknown transport `telnet`"));
    let local = fault("[[host]]\nname = \"a\"\naddress = \"local\"\njump = \"b\"\n");
    assert!(local.contains("`jump` means nothing"), "{local}");
}

#[test]
fn where_the_agent_is_on_a_host_is_a_whole_path() {
    for line in ["agent_path = \"hvtui\"", "cache_dir = \"../x\"", "agent_path = \"/a\\nb\""] {
        assert!(fault_of(line).contains("is no whole path"), "{}", fault_of(line));
    }
    assert!(fault_of("install = 0").contains("neither true nor false"));
    let local = fault("[[host]]\nname = \"a\"\naddress = \"local\"\nagent_path = \"/x\"\ninstall = false\n");
    assert_eq!(local.matches("means nothing for address").count(), 2, "{local}");
}

#[test]
fn a_file_without_a_host_is_refused() {
    for text in ["", "[defaults]\nuser = \"ml\"\n"] {
        assert!(fault(text).contains("the file names no host"));
    }
}

#[test]
fn what_the_file_says_does_not_drive_the_terminal() {
    let text = fault("[[host]]\nname = \"a\\u001b[31m\"\naddress = \"\u{9b}x\"\n# \u{1b}]0;x\u{7}\n");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
}

#[test]
fn recipes_have_rules() {
    let host = "[[host]]\nname = \"gpu-a\"\naddress = \"local\"\n[[recipe]]\nname = \"r\"\n";
    for (name, lines) in [
        ("no_command", ""),
        ("empty_command", "command = \"\""),
        ("open_quote", "command = \"echo 'x\""),
        ("unknown_host", "command = \"true\"\npicks = [\"gpu-b:0\"]"),
        ("no_slot", "command = \"true\"\npicks = [\"gpu-a\"]"),
        ("both", "command = \"true\"\nnp = 1\npicks = [\"gpu-a:0\"]"),
        ("np", "command = \"true\"\nnp = 0"),
        ("kind_unknown", "command = \"true\"\nkind = \"x\""),
        ("image", "command = \"true\"\nimage = \"\"\nvolumes = [\"data\"]"),
        ("volumes", "command = \"true\"\nvolumes = [\"/data:/data\"]"),
        ("sync", "command = \"true\"\nsync = \":~/x\""),
        ("command_type", "command = 7"),
    ] {
        insta::assert_snapshot!(format!("recipe_{name}"), fault(&format!("{host}{lines}\n")));
    }
    for (key, meant) in
        [("ranks", "np"), ("cwd", "workdir"), ("gpus", "picks"), ("cmd", "command"), ("imag", "image")]
    {
        let unknown = fault(&format!("{host}command = \"true\"\n{key} = 2\n"));
        assert!(unknown.contains(&format!("unknown key `{key}`")), "{unknown}");
        assert!(unknown.contains(&format!("did you mean `{meant}`?")), "{unknown}");
    }
    for kind in JobKind::ALL {
        let name = kind.name();
        let kept = load(&format!("{host}command = \"true\"\nkind = \"{name}\"\n")).unwrap();
        assert_eq!(kept.recipes[0].kind, Some(kind), "{name}");
    }
    let placed = load(&format!("{host}command = \"true\"\nworkdir = \"~/mnist\"\n")).unwrap();
    assert_eq!(placed.recipes[0].workdir.as_deref(), Some("~/mnist"));
    let relative = fault(&format!("{host}command = \"true\"\nworkdir = \"mnist\"\n"));
    assert!(relative.contains("workdir `mnist` is a relative path"), "{relative}");
    let twice = fault(&format!("{host}command = \"a\"\n[[recipe]]\nname = \"r\"\ncommand = \"b\"\n"));
    assert!(twice.contains("duplicate recipe `r`"));
}

#[test]
fn runs_are_kept_by_age_count_and_size() {
    let with = |lines: &str| format!("[runs]\n{lines}\n[[host]]\nname = \"a\"\naddress = \"10.0.0.11\"\n");
    assert!(load(&with("")).unwrap().retention.is_empty());
    let kept = load(&with("older_than = \"30d\"\nkeep = 50\nmax_size = \"5G\"")).unwrap().retention;
    assert_eq!(kept.words().as_deref(), Some("30d 0h, the newest 50, 5.0 G"));
    for (line, words) in [
        ("older_than = \"soon\"", "older_than `soon` is not a length of time"),
        ("keep = -1", "keep = -1 is not a number of runs"),
        ("max_size = \"big\"", "max_size `big` is not a size"),
        ("kept = 5", "unknown"),
    ] {
        let fault = fault(&with(line));
        assert!(fault.contains(words), "{line}: {fault}");
    }
}

#[test]
fn alerts_have_thresholds_and_a_command() {
    let with = |lines: &str| format!("[alerts]\n{lines}\n[[host]]\nname = \"a\"\naddress = \"10.0.0.11\"\n");
    assert_eq!(load(&with("")).unwrap().alerts, config::AlertsConfig::default());
    let lines = "temperature = 80\nheld_idle = \"2h\"\nhang = \"off\"\necc = \"off\"\nstraggler = \"on\"\n\
                 command = [\"notify-send\", \"{place}\", \"{words} {}\"]";
    let config::AlertsConfig { rules, command } = load(&with(lines)).unwrap().alerts;
    let expected = AlertRules {
        temperature: HeatRule::Celsius(80),
        held_idle_us: Some(7_200_000_000),
        hang_us: None,
        ecc: false,
        ..AlertRules::default()
    };
    assert_eq!(rules, expected);
    assert_eq!(command.unwrap(), ["notify-send", "{place}", "{words} {}"]);
    assert_eq!(load(&with("temperature = \"off\"")).unwrap().alerts.rules.temperature, HeatRule::Off);

    let faults = [
        "temperature = 900",
        "hang = \"soon\"",
        "held_idle = \"0s\"",
        "ecc = \"maybe\"",
        "command = []",
        "command = [\"notify-send\", \"{wrods}\"]",
        "temprature = 80",
    ];
    let shown: Vec<String> = faults.iter().map(|line| fault(&with(line))).collect();
    insta::assert_snapshot!("alerts_faults", shown.join("\n\n"));
    let both = fault(&with("hang = \"soon\"\necc = \"maybe\""));
    assert!(both.contains("hang `soon`") && both.contains("ecc `maybe`"), "{both}");
}
