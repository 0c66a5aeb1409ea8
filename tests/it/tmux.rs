//! A person's whole way through the terminal UI, with the real binary in a real terminal: see, pick, launch,
//! watch, look back, leave; and the terminal given back on every way out.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::built;
use crate::common::client::{Client, only_run};
use crate::common::cluster::Cluster;
use crate::common::in_time::OutputInTime;
use crate::common::processes::until;
use crate::common::terminal::Terminal;
use crate::local_runs::Person;

/// Two ssh hosts and this machine.
fn with_local(cluster: &Cluster) -> Client<'_> {
    let client = Client::new(cluster);
    let local = "\n[[host]]\nname = \"here\"\naddress = \"local\"\nslots = 1\n";
    // their GPUs are what shall be picked
    let hosts = cluster.hosts_toml(1).replace("slots = 1\n", "");
    client.write("hosts.toml", &(hosts + local));
    client
}

/// Waits for the Cluster screen with every host connected.
fn wait_for_hosts(terminal: &Terminal, names: &[&str]) -> String {
    terminal.wait("all hosts", |screen| {
        names.iter().all(|name| screen.lines().any(|line| line.contains(name) && line.contains('%')))
    })
}

#[test]
fn see_pick_launch_watch_look_back_leave() {
    let library = built::example("libfake_nvml.so");
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/gpus");
    let Some(cluster) = Cluster::ready(2, &["--fake-nvml".as_ref(), library.as_ref(), scripts.as_ref()])
    else {
        return;
    };
    let client = with_local(&cluster);
    let Some(terminal) = Terminal::start(&client.hvtui(&[]), 120, 40) else { return };
    wait_for_hosts(&terminal, &["n1", "n2", "here"]);
    terminal.wait("the models of both hosts", |screen| screen.contains("H200") && screen.contains("H100"));

    terminal.press(&["?"]);
    terminal.wait("help with its keys", |screen| screen.contains("space") && screen.contains("launch a run"));
    terminal.press(&["Escape"]);
    terminal.wait("no help", |screen| !screen.contains("launch a run"));

    // Rows: n1, its GPUs 0 and 1, n2, its GPUs 0 and 1, here.
    // A process computes on n1's GPU 0.
    terminal.press(&["g", "j", "j", "Space"]);
    terminal.wait("one pick", |screen| screen.contains("1 picked"));
    // a pick moves the cursor on, to n2
    terminal.press(&["j", "Space"]);
    terminal.wait("two picks", |screen| screen.contains("2 picked") && screen.contains('●'));

    terminal.press(&["l"]);
    terminal.wait("the Launch screen", |screen| screen.contains("command") && screen.contains("enter"));
    terminal.type_in("hvtui train diabetes");
    terminal.wait("the plan of both hosts", |screen| {
        screen.contains("train diabetes") && screen.contains("n1") && screen.contains("n2")
    });
    terminal.press(&["Enter"]);
    terminal.wait("the run's ranks", |screen| {
        screen.contains("RANK") && screen.contains("n1:1") && screen.contains("n2:0")
    });
    terminal.wait("steps", |screen| screen.contains("loss"));
    terminal.wait("the run's end", |screen| screen.contains("all 2 ranks finished"));

    let run = only_run(&client);
    terminal.press(&["r"]);
    terminal
        .wait("the list of runs", |screen| screen.contains("Runs") && screen.contains(&run[run.len() - 4..]));
    terminal.press(&["Enter"]);
    let opened = terminal.wait("the replay", |screen| screen.contains("Replay") && screen.contains("rank 0"));
    let head = |screen: &str| screen.lines().next().unwrap_or_default().to_owned();
    // it opens at the outcome
    terminal.press(&["Home"]);
    let at_start = terminal.wait("the start", |screen| head(screen) != head(&opened));
    terminal.press(&["End"]);
    terminal.wait("the end", |screen| head(screen) == head(&opened));
    terminal.press(&["Home"]);
    terminal.wait("the start again", |screen| head(screen) == head(&at_start));
    terminal.press(&["Right"]);
    let sought = terminal.wait("a seek forward", |screen| head(screen) != head(&at_start));
    terminal.press(&["Space"]);
    terminal.wait("it to play", |screen| head(screen) != head(&sought));
    terminal.press(&["q"]);
    terminal.assert_restored(0);
}

/// What the Run screen shows of `tick N` before the playhead.
fn last_tick_before(screen: &str) -> Option<u32> {
    let lines: Vec<&str> = screen.lines().filter(|line| !line.starts_with('│')).collect();
    last_tick(&lines.join("\n"))
}

#[test]
fn a_run_that_goes_on_is_frozen_gone_back_in_and_followed_again() {
    let person = Person::new(2);
    let hvtui = |args: &[&str]| {
        let mut command = Command::new(crate::common::program::hvtui());
        command.args(args).current_dir(person.home()).env("HOME", person.home());
        command
    };
    let Some(first) = Terminal::start(&hvtui(&[]), 100, 30) else { return };
    first.wait("the host", |screen| screen.contains("here") && screen.contains('%'));
    first.press(&["g", "Space", "l"]);
    first.wait("the Launch screen", |screen| screen.contains("command") && screen.contains("enter"));
    first.type_in("sh -c 'i=0; while [ $i -lt 2000 ]; do sleep 0.1; i=$((i+1)); echo tick $i; done'");
    first.wait("the plan", |screen| screen.contains("tick") && screen.contains("here"));
    first.press(&["Enter"]);
    first.wait("its lines", |screen| last_tick(screen) > Some(30));

    let head = |screen: &str| screen.lines().next().unwrap_or_default().to_owned();
    first.press(&["Space"]);
    // of a screen that is seen twice: one may be seen while it is drawn
    let before = std::cell::Cell::new(None);
    let frozen = first.wait("a moment", |screen| {
        let tick = head(screen).contains("behind").then(|| last_tick_before(screen)).flatten();
        before.replace(tick) == tick && tick.is_some()
    });
    let at = last_tick_before(&frozen);
    let later = first.wait("time to go on", |screen| {
        head(screen).contains("behind") && head(screen) != head(&frozen) && screen.contains("\n│")
    });
    assert_eq!(last_tick_before(&later), at, "what is frozen stands still:\n{later}");
    first.press(&["("]);
    let back = first.wait("a moment before it", |screen| last_tick_before(screen) < at);
    // played on it comes to now, and goes on with it
    first.press(&["Space", ">", ">", ">"]);
    first.wait("it to come to now", |screen| {
        head(screen).contains("live") && last_tick_before(screen) > last_tick(&later)
    });
    first.press(&["("]);
    first.wait("a moment before it", |screen| head(screen).contains("behind"));
    first.press(&["F"]);
    let now = first.wait("the run", |screen| head(screen).starts_with(" Run"));
    assert!(last_tick(&now) > last_tick(&back), "{now}");
    first.wait("it to go on", |screen| last_tick(screen) > last_tick(&now));

    // another hvtui shows what this one records
    let Some(second) = Terminal::start(&hvtui(&["replay", "last"]), 100, 30) else { return };
    let opened = second.wait("the recording", |screen| last_tick_before(screen).is_some());
    second.press(&["F"]);
    second.wait("it to follow", |screen| {
        head(screen).contains("live") && last_tick_before(screen) > last_tick_before(&opened)
    });
    first.press(&["x"]);
    first.wait("a question", |screen| screen.contains("Stop run"));
    first.press(&["y"]);
    let ended = first.wait("its end", |screen| screen.contains("stopped"));
    second.wait("its end there too", |screen| screen.contains("stopped") && !head(screen).contains("live"));
    assert!(head(&ended).starts_with(" Run"), "{ended}");
    for terminal in [&first, &second] {
        terminal.press(&["q"]);
        terminal.assert_restored(0);
    }
}

/// What nothing followed is on the screen of an attached client, as in a replay: its charts begin where the run began.
#[test]
fn a_run_that_is_resumed_has_its_whole_past_on_its_screen() {
    let person = Person::new(2);
    let late_rank = built::example("late_rank");
    let rank = late_rank.to_str().expect("a path");
    let out = person.run(&["run", "--detach", "-np", "2", "--env", "LATE_STEPS=20000", "--", rank]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // the past of which the client that launched it knows nothing
    let reports = format!("{}/.local/state/hvtui/spool/*/*/rank-0.report", person.home().display());
    until("hundreds of steps", || {
        let told = glob::glob(&reports).expect("a pattern").filter_map(Result::ok);
        told.filter_map(|file| std::fs::read_to_string(file).ok()).any(|told| told.lines().count() > 600)
    });
    let mut hvtui = Command::new(crate::common::program::hvtui());
    hvtui.current_dir(person.home()).env("HOME", person.home());
    let Some(terminal) = Terminal::start(&hvtui, 120, 40) else { return };
    terminal.wait("the host", |screen| screen.contains("here") && screen.contains('%'));
    terminal.press(&["r"]);
    terminal.wait("the run", |screen| screen.contains("running"));
    terminal.press(&["Enter"]);
    let caught_up = terminal.wait("how it stands", |screen| {
        screen.starts_with(" Run") && !screen.contains("catching up") && screen.contains(" step time ")
    });
    let row = |head: &str| -> Vec<char> {
        let row = caught_up.lines().find(|line| line.starts_with(head)).expect("a row of the strip");
        row.chars().collect()
    };
    let (whole, lengths) = (row(" whole run"), row(" step time"));
    let past: Vec<char> =
        whole.iter().zip(&lengths).filter(|(over, _)| **over == '╌').map(|(_, length)| *length).collect();
    let known = past.iter().filter(|length| **length != ' ').count();
    assert!(past.len() > 20 && known * 10 > past.len() * 9, "{known} of {}:\n{caught_up}", past.len());
    terminal.press(&["x"]);
    terminal.wait("a question", |screen| screen.contains("Stop run"));
    terminal.press(&["y"]);
    terminal.wait("its end", |screen| screen.contains("stopped"));
    terminal.press(&["q"]);
    terminal.assert_restored(0);
}

/// The greatest number that the ranks of `echo tick N` have printed.
fn last_tick(screen: &str) -> Option<u32> {
    let number = |at: &str| at.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    screen.split("tick ").skip(1).filter_map(number).max()
}

#[test]
fn a_host_that_goes_away_shows_why_and_holds_up_nobody() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    let Some(terminal) = Terminal::start(&client.hvtui(&[]), 120, 40) else { return };
    wait_for_hosts(&terminal, &["n1", "n2"]);
    cluster.change("stop", "n2");
    let screen = terminal.wait("n2 to be refused", |screen| screen.contains("refused"));
    assert!(screen.lines().any(|line| line.contains("n1") && line.contains('%')), "{screen}");
    cluster.change("start", "n2");
    terminal.press(&["R"]);
    wait_for_hosts(&terminal, &["n1", "n2"]);
    terminal.press(&["q"]);
    terminal.assert_restored(0);
    // it ends when it hears that no client is at its link any more
    cluster.until_none("n1", |process| process.args.contains("agent --stdio"));
}

#[test]
fn a_run_whose_ui_was_killed_is_listed_and_resumed_and_leaving_says_that_it_goes_on() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    let Some(first) = Terminal::start(&client.hvtui(&[]), 120, 40) else { return };
    wait_for_hosts(&first, &["n1", "n2"]);
    first.press(&["g", "Space", "l"]);
    first.wait("the Launch screen", |screen| screen.contains("command") && screen.contains("enter"));
    first.type_in("sh -c 'i=0; while sleep 0.1; do i=$((i+1)); echo tick $i; done'");
    first.wait("the plan", |screen| screen.contains("tick") && screen.contains("n1"));
    first.press(&["Enter"]);
    first.wait("its lines", |screen| screen.contains("tick 3"));
    let run = only_run(&client);
    first.signal("KILL");
    // the killed UI leaves the cursor wherever it was, so that the shell's words may be cut by the screen's edge
    first.wait("its end", |screen| screen.split_whitespace().collect::<String>().contains("[exit137]"));

    let short = &run[run.len() - 4..];
    let Some(second) = Terminal::start(&client.hvtui(&[]), 120, 40) else { return };
    wait_for_hosts(&second, &["n1", "n2"]);
    second.press(&["r"]);
    second.wait("the run", |screen| {
        screen.lines().any(|line| line.contains(short) && line.contains("running"))
    });
    second.press(&["Enter"]);
    // the command has the word, too: that the run is followed shows in the numbers alone
    let resumed = second.wait("its lines", |screen| screen.contains("RANK") && last_tick(screen).is_some());
    second.wait("new lines", |screen| last_tick(screen) > last_tick(&resumed));
    second.press(&["d"]);
    second.wait("the runs, where it was opened", |screen| {
        screen.contains("all recordings") || screen.contains("SIZE")
    });
    second.press(&["q"]);
    let said = second.assert_restored(0);
    // with the hosts file the line is longer than the screen is wide
    let words: String = said.split_whitespace().collect();
    assert!(words.contains(&format!("run{short}goeson.Tocomeback:hvtui--hosts")), "{said}");
    assert!(words.contains(&format!("attach{short};toendit:hvtui--hosts")), "{said}");

    let Some(third) = Terminal::start(&client.hvtui(&["attach", &run]), 120, 40) else { return };
    third.wait("its lines", |screen| screen.contains("[0] tick"));
    // the terminal is closed
    drop(third);
    let logs = client.run(&["runs"]);
    assert!(logs.out.contains("running"), "{logs:?}");
    let stopped = client.run(&["stop", &run]);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    let listed = client.run(&["runs"]);
    assert!(listed.out.contains("exit 130: stopped"), "{listed:?}");
    let logs = client.run(&["logs", &run]);
    let numbers: Vec<&str> = logs.out.lines().filter_map(|line| line.strip_prefix("[0] tick ")).collect();
    let wanted: Vec<String> = (1..=numbers.len()).map(|number| number.to_string()).collect();
    assert_eq!(numbers, wanted, "each line once");
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let client = Client::new(&cluster);
    for (signal, code) in [("TERM", 143), ("HUP", 129)] {
        let Some(terminal) = Terminal::start(&client.hvtui(&[]), 80, 24) else { return };
        wait_for_hosts(&terminal, &["n1"]);
        assert_eq!(terminal.mode("#{alternate_on}"), "1");
        terminal.signal(signal);
        terminal.assert_restored(code);
    }
}

#[test]
fn without_a_terminal_it_names_what_to_use() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let ended = Client::new(&cluster).run(&[]);
    assert_eq!(ended.code, 64, "{ended:?}");
    for word in ["watch", "run"] {
        assert!(ended.said().contains(word), "{ended:?}");
    }
}

/// Locks the person's key, and makes it the only way into the hosts.
fn lock(cluster: &Cluster, client: &Client<'_>, passphrase: &str) {
    let shared = cluster.dir().join("hub/home").display().to_string();
    client
        .write("hosts.toml", &cluster.hosts_toml(1).replace(&shared, &client.path("").display().to_string()));
    let mut keygen = std::process::Command::new("ssh-keygen");
    keygen.args(["-q", "-p", "-P", "", "-N", passphrase, "-f"]).arg(client.path(".ssh/id_ed25519"));
    assert!(keygen.output_in_time().expect("ssh-keygen").status.success());
}

#[test]
fn a_passphrase_and_unknown_keys_are_asked_for_in_the_ui() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    lock(&cluster, &client, "open sesame");
    std::fs::remove_file(client.path(".ssh/known_hosts")).expect("known hosts");
    let Some(terminal) = Terminal::start(&client.hvtui(&[]), 120, 40) else { return };
    for asked in 0..2 {
        terminal.wait("a question about a host key", |screen| {
            screen.contains("unknown host key") && screen.contains("SHA256:") && !screen.contains("? yes")
        });
        if asked == 0 {
            // half a word is no answer: it is asked again
            terminal.type_in("y");
            terminal.press(&["Enter"]);
            terminal.wait("what is an answer", |screen| screen.contains("type yes, no or the fingerprint"));
        }
        terminal.type_in("yes");
        terminal.wait("the answer", |screen| screen.contains("(yes/no)? yes"));
        terminal.press(&["Enter"]);
        terminal.wait("it to be gone", |screen| !screen.contains("(yes/no)? yes"));
    }
    let screen = terminal.wait("the passphrase's dialog", |screen| screen.contains("passphrase:"));
    assert!(screen.contains("id_ed25519"), "{screen}");
    terminal.type_in("wrong");
    terminal.press(&["Enter"]);
    terminal.wait("why it is asked again", |screen| screen.contains("does not open the key"));
    terminal.type_in("open sesame");
    let screen = terminal.wait("a mask", |screen| screen.contains("passphrase: •••"));
    assert!(!screen.contains("sesame"), "{screen}");
    terminal.press(&["Enter"]);
    wait_for_hosts(&terminal, &["n1", "n2"]);
    terminal.press(&["q"]);
    terminal.assert_restored(0);
    let known = std::fs::read_to_string(client.path(".ssh/known_hosts")).expect("known hosts");
    assert_eq!(known.lines().count(), 2, "{known}");
}

#[test]
fn a_command_asks_on_its_terminal_and_gives_it_back() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let client = Client::new(&cluster);
    lock(&cluster, &client, "open sesame");
    let Some(terminal) = Terminal::start(&client.hvtui(&["hosts", "check"]), 100, 30) else { return };
    terminal.wait("the question", |screen| screen.contains("passphrase:"));
    terminal.type_in("open sesame");
    terminal.press(&["Enter"]);
    let screen = terminal.assert_restored(0);
    assert!(screen.contains("✔ n1") && !screen.contains("sesame"), "{screen}");

    let Some(terminal) = Terminal::start(&client.hvtui(&["watch", "--once"]), 100, 30) else { return };
    terminal.wait("the question", |screen| screen.contains("passphrase:"));
    terminal.signal("TERM");
    terminal.assert_restored(143);

    // `y` may be meant for another question
    std::fs::remove_file(client.path(".ssh/known_hosts")).expect("known hosts");
    let Some(terminal) = Terminal::start(&client.hvtui(&["hosts", "check"]), 100, 30) else { return };
    terminal.wait("the question", |screen| screen.contains("trust it (yes/no)?"));
    terminal.type_in("y");
    terminal.press(&["Enter"]);
    terminal.wait("what is an answer", |screen| screen.contains("type yes, no or the fingerprint:"));
    terminal.type_in("yes");
    terminal.press(&["Enter"]);
    terminal.wait("the next question", |screen| screen.contains("passphrase:"));
    terminal.type_in("open sesame");
    terminal.press(&["Enter"]);
    terminal.assert_restored(0);

    // without a terminal nothing waits
    let ended = client.run(&["hosts", "check"]);
    assert_eq!(ended.code, 77, "{ended:?}");
    assert!(ended.said().contains("has a passphrase, and "), "{ended:?}");

    // and the program that OpenSSH would ask is asked
    let askpass = client.path("askpass");
    client.write("askpass", "#!/bin/sh\necho \"$1\" >> ~/asked\necho open sesame\n");
    std::fs::set_permissions(&askpass, PermissionsExt::from_mode(0o700)).expect("askpass");
    let mut check = client.hvtui(&["hosts", "check"]);
    let out = check
        .env("SSH_ASKPASS", &askpass)
        .env("SSH_ASKPASS_REQUIRE", "force")
        .output_in_time()
        .expect("hvtui");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    let asked = std::fs::read_to_string(client.path("asked")).expect("what was asked");
    assert!(asked.contains("id_ed25519") && asked.contains("passphrase:"), "{asked}");
}
