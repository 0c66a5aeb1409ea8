//! Secrets on the whole way, with the real binary on real ssh hosts: who sees them, and who listens.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::process::Child;
use std::sync::LazyLock;

use crate::common::client::{Client, only_run};
use crate::common::cluster::Cluster;
use crate::common::in_time::OutputInTime;
use crate::common::processes::{end_of, until, until_says};

/// Made when it is used: a source or a program that holds it would be found, wherever this repository lies.
static CANARY: LazyLock<String> = LazyLock::new(|| {
    let random = RandomState::new().build_hasher().finish();
    format!("canary-{random:016x}")
});

fn spawn(client: &Client<'_>, args: &[&str]) -> Child {
    let out = File::create(client.path("out")).expect("out");
    let err = File::create(client.path("err")).expect("err");
    let mut command = client.hvtui(args);
    command.env("TOKEN", &*CANARY).stdout(out).stderr(err).spawn().expect("hvtui")
}

/// One who does not have the value.
fn spawn_without(client: &Client<'_>, args: &[&str]) -> Child {
    let out = File::create(client.path("out")).expect("out");
    let err = File::create(client.path("err")).expect("err");
    client.hvtui(args).stdout(out).stderr(err).spawn().expect("hvtui")
}

fn said(client: &Client<'_>) -> String {
    fs::read_to_string(client.path("out")).unwrap_or_default()
}

/// How the files end that the search itself makes: one that does not find them has not searched.
const CONTROL: &str = ".control";

/// Files that a host has since the cluster is up and that hold the value, but for what ranks printed there: that is
/// their own affair.
fn files_with_it(cluster: &Cluster, host: &str) -> String {
    let since = cluster.dir().join("etc-hosts").display().to_string();
    // `/tmp` is that of all hosts and of all tests
    let control = format!("{}-{host}{CONTROL}", cluster.dir().file_name().expect("a name").display());
    // files may go meanwhile, of which both complain
    let line = format!(
        "places=\"$HOME /tmp /dev/shm /run\"; echo $HOME; for place in $places; do echo {0} >$place/{control}; done; \
         find $places -type f -newer {since} ! -name 'rank-*.out' ! -name 'rank-*.err' -exec grep -l {0} {{}} + \
         2>/dev/null; for place in $places; do rm $place/{control}; done",
        *CANARY
    );
    let found = cluster.surely_on(host, &line);
    let mut found: Vec<&str> = found.lines().collect();
    let home = found.remove(0);
    for place in [home, "/tmp", "/dev/shm", "/run"] {
        let own = format!("{place}/{control}");
        assert!(found.contains(&own.as_str()), "{host}: {place} was not searched: {found:?}");
    }
    found.retain(|path| !path.ends_with(CONTROL));
    found.join("\n")
}

/// Files of a person at the hub that hold the value.
fn files_of(cluster: &Cluster, client: &Client<'_>) -> String {
    client.write(CONTROL, &CANARY);
    let found =
        cluster.hub("grep").args(["-rl", "canary"]).arg(client.path("")).output_in_time().expect("grep");
    fs::remove_file(client.path(CONTROL)).expect("the control");
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.contains(CONTROL), "{} was not searched: {found}", client.path("").display());
    found.lines().filter(|path| !path.ends_with(CONTROL)).collect::<Vec<_>>().join("\n")
}

/// What processes of a host hold the value in their environment: their command lines.
fn holders(cluster: &Cluster, host: &str) -> Vec<String> {
    // The value is looked for here, so that it stands in no environment or command line of the search itself.
    let line = r#"for p in /proc/[0-9]*; do
        echo "$(tr '\0' ' ' <$p/cmdline)|$(tr '\0\n' '  ' <$p/environ)"
    done 2>/dev/null"#;
    let all = cluster.on(host, line);
    let lines = all.lines().filter_map(|line| line.split_once('|'));
    lines
        .filter(|(_, environment)| environment.contains(&*CANARY))
        .map(|(words, _)| words.to_owned())
        .collect()
}

#[test]
fn vector_06_a_secret_variable_is_seen_by_its_ranks_and_by_nobody_else() {
    let Some(cluster) = Cluster::up(2, &[]) else { return };
    let client = Client::new(&cluster);
    let script = "echo token=$TOKEN; echo length=${#TOKEN}; while [ ! -e ~/go-on ]; do sleep 0.1; done";
    let launch = ["run", "-np", "2", "--secret-env", "TOKEN", "--", "sh", "-c", script];
    let missing = client.run(&launch);
    assert_eq!(missing.code, 64, "{missing:#?}");
    assert!(missing.err.contains("secret variable TOKEN is not set here"), "{missing:#?}");

    let mut run = spawn(&client, &launch);
    until("both ranks", || said(&client).matches(&format!("length={}", CANARY.len())).count() == 2);
    let shown = said(&client) + &fs::read_to_string(client.path("err")).expect("err");
    assert_eq!(shown.matches("token=•••").count(), 2, "{shown}");
    assert!(!shown.contains("canary"), "{shown}");

    // A supervisor that takes the run over needs no secret, and gets none.
    cluster.replace_supervisor("n1", &only_run(&client));
    for host in ["n1", "n2"] {
        let lines = cluster.on(host, "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'; ps -ef");
        assert!(lines.contains("rank-wrap") && !lines.contains("canary"), "{host}: {lines}");
        let holders = holders(&cluster, host);
        assert!(holders.iter().any(|words| words.contains("rank-wrap")), "{host}: {holders:?}");
        let ranks = ["rank-wrap", "token=$TOKEN", "sleep 0.1"];
        let strangers: Vec<_> =
            holders.iter().filter(|words| !ranks.iter().any(|rank| words.contains(rank))).collect();
        assert!(strangers.is_empty(), "{host}: {strangers:?}");
        assert_eq!(files_with_it(&cluster, host), "", "{host}");
        cluster.on(host, "touch ~/go-on");
    }
    assert!(end_of(&mut run).success());

    let listed = client.run(&["runs", "--json", "--local"]);
    assert!(
        listed.out.contains("\"TOKEN\": \"•••\"") || listed.out.contains("\"TOKEN\":\"•••\""),
        "{listed:?}"
    );
    let all: serde_json::Value = serde_json::from_str(&listed.out).expect("JSON");
    let id = all[0]["spec"]["id"].as_str().expect("an id");
    let logs = client.run(&["logs", id]);
    assert_eq!(logs.out.matches("token=•••").count(), 2, "{logs:?}");
    assert!(!format!("{listed:?}{logs:?}").contains("canary"), "{logs:?}");
    assert_eq!(files_of(&cluster, &client), "", "no file of the client");
}

/// What ranks of this test print: at once, when the test says so, and by something that outlives its rank.
const TELLTALE: &str = r"echo token=$TOKEN; echo err=$TOKEN >&2
while [ ! -e ~/go-on-$HVTUI_RUN ]; do sleep 0.1; done
trap '' TERM
(sleep 0.5; echo stray=$TOKEN) &
echo late=$TOKEN";

#[test]
fn vector_06_who_attaches_from_elsewhere_sees_no_secret_value_either() {
    let Some(cluster) = Cluster::up(2, &[]) else { return };
    let owner = Client::new(&cluster);
    let launch = ["run", "--detach", "-np", "2", "--secret-env", "TOKEN", "--", "sh", "-c", TELLTALE];
    let launched = end_of(&mut spawn(&owner, &launch));
    let id = said(&owner).trim().to_owned();
    assert!(launched.success() && !id.is_empty(), "{id}");

    // Another person's folder on another machine: it has never seen the value.
    let guest = Client::new(&cluster);
    let mut attached = spawn_without(&guest, &["attach", &id]);
    until("what was printed", || said(&guest).matches("token=•••").count() == 2);
    // One whose supervisor was replaced meanwhile, too.
    cluster.kill_supervisor("n2", &id);
    for host in ["n1", "n2"] {
        cluster.on(host, &format!("touch ~/go-on-{id}"));
    }
    let end = end_of(&mut attached);
    let shown = said(&guest) + &fs::read_to_string(guest.path("err")).expect("err");
    assert!(end.success(), "{shown}");

    // And one who comes when all is over, and no process knows the value any more.
    let late = Client::new(&cluster);
    let logs = late.run(&["logs", &id]);
    let attached = late.run(&["attach", &id]);
    let again = late.run(&["logs", &id]);
    for shown in [shown, logs.said(), attached.said(), again.said()] {
        for word in ["token=•••", "err=•••", "late=•••", "stray=•••"] {
            assert_eq!(shown.matches(word).count(), 2, "{word}: {shown}");
        }
        assert!(!shown.contains("canary"), "{shown}");
    }
    for client in [&guest, &late] {
        assert_eq!(files_of(&cluster, client), "", "no file of who attached");
    }
    for host in ["n1", "n2"] {
        assert_eq!(files_with_it(&cluster, host), "", "{host}");
    }
}

/// Ends beside its supervisor, and leaves something that prints later still.
const ENDS_WITH_IT: &str = r"echo ready
while [ ! -e ~/go-on-$HVTUI_RUN ]; do :; done
trap '' TERM
(sleep 1; echo stray=$TOKEN) &";

#[test]
fn vector_06_what_a_rank_leaves_that_ends_with_its_supervisor_shows_no_secret_value_and_is_shown() {
    const HOSTS: [&str; 4] = ["n1", "n2", "n3", "n4"];
    let Some(cluster) = Cluster::up(HOSTS.len(), &[]) else { return };
    let owner = Client::new(&cluster);
    owner.write("hosts.toml", &cluster.hosts_toml(1));
    let launch = ["run", "--detach", "-np", "4", "--secret-env", "TOKEN", "--", "sh", "-c", ENDS_WITH_IT];
    let launched = end_of(&mut spawn(&owner, &launch));
    let id = said(&owner).trim().to_owned();
    assert!(launched.success() && !id.is_empty(), "{id}");

    for host in HOSTS {
        let ready = format!("grep -qr ready ~/.local/state/hvtui/spool/{id}/*/ && echo ready");
        until("its rank", || cluster.on(host, &ready) == "ready\n");
        let supervisor = cluster.state_of(host, &id).supervisor.pid;
        let line = format!("kill -9 {supervisor} && touch ~/go-on-{id} && echo killed");
        assert_eq!(cluster.on(host, &line), "killed\n");
    }
    let guest = Client::new(&cluster);
    guest.write("hosts.toml", &cluster.hosts_toml(1));
    let shown = guest.run(&["attach", &id]).said();
    assert!(!shown.contains("canary"), "{shown}");
    assert_eq!(shown.matches("stray=•••").count(), HOSTS.len(), "{shown}");
}

/// The sockets with which a host listens for TCP, as the kernel's table writes them: `0B004D0A:C350`.
fn listening(cluster: &Cluster, host: &str) -> BTreeSet<String> {
    let all = cluster.on(host, "cat /proc/net/tcp /proc/net/tcp6");
    let listening = all.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (address, state) = (fields.get(1)?, fields.get(3)?);
        (*state == "0A").then(|| (*address).to_owned())
    });
    listening.collect()
}

/// Starts only when it is told to, so that all others wait for it.
const LATE: &str = "while [ $RANK = 3 ] && [ ! -e ~/go-on ]; do sleep 0.1; done
exec ~/.cache/hvtui/agents/*/hvtui train digits --epochs 10000";

#[test]
fn vector_01_nothing_of_a_run_listens_on_every_address() {
    let Some(cluster) = Cluster::up(2, &[]) else { return };
    let client = Client::new(&cluster);
    client.write("hosts.toml", &cluster.hosts_toml(2));
    let hosts = [("n1", "0B004D0A"), ("n2", "0C004D0A")];
    let before = hosts.map(|(host, _)| listening(&cluster, host));
    // What the run has opened on each host, and on what address.
    let opened = || {
        let both = hosts.iter().zip(&before);
        both.map(|((host, _), before)| &listening(&cluster, host) - before).collect::<Vec<_>>()
    };
    let assert_own = |opened: &[BTreeSet<String>]| {
        for ((host, own), opened) in hosts.iter().zip(opened) {
            let elsewhere: Vec<_> = opened.iter().filter(|at| !at.starts_with(&format!("{own}:"))).collect();
            assert!(elsewhere.is_empty(), "{host} listens on {elsewhere:?}, not on {own} alone");
        }
    };
    let mut run = spawn(&client, &["run", "-np", "4", "--", "sh", "-c", LATE]);
    // Rank 0 waits at the meeting's port and each rank at the one for its peers' data: two ranks here, one there.
    let said = || fs::read_to_string(client.path("err")).unwrap_or_default();
    until_says("[3, 1]", || {
        let opened = opened();
        assert_own(&opened);
        format!("{:?} of {opened:?}: {}", opened.iter().map(BTreeSet::len).collect::<Vec<_>>(), said())
    });
    cluster.on("n2", "touch ~/go-on");
    until("a step", || {
        assert_own(&opened());
        said().contains("step ")
    });
    assert_eq!(opened(), [BTreeSet::new(), BTreeSet::new()], "once all have met");
    let id = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("a signal");
    end_of(&mut run);
}
