//! `hvtui image` with real docker daemons, one on each of two real ssh hosts; the person's own engine is that of the first.

use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::common::client::{Client, Ended};
use crate::common::cluster::{Cluster, text};
use crate::common::docker::{IMAGE, up};
use crate::common::in_time::OutputInTime;
use crate::common::processes;
use crate::common::processes::until;

/// Prints an image for another machine, `hvtui-test:odd`.
const FOREIGN: &str = r#"
import hashlib, io, json, sys, tarfile
def archive(out, files):
    with tarfile.open(fileobj=out, mode="w|") as tar:
        for name, content in files:
            head = tarfile.TarInfo(name)
            head.size = len(content)
            tar.addfile(head, io.BytesIO(content))
layer = io.BytesIO()
archive(layer, [("hello", b"hello")])
layer = layer.getvalue()
hashed = "sha256:" + hashlib.sha256(layer).hexdigest()
config = {"architecture": "s390x", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [hashed]}}
listed = [{"Config": "c.json", "RepoTags": ["hvtui-test:odd"], "Layers": ["l.tar"]}]
files = [("c.json", json.dumps(config).encode()), ("l.tar", layer), ("manifest.json", json.dumps(listed).encode())]
archive(sys.stdout.buffer, files)
"#;

/// Two hosts with docker, each with a disk of its own for what comes; they end with this process.
fn two() -> Option<&'static Cluster> {
    static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
    TWO.get_or_init(|| {
        let cluster = up(2, &[])?;
        for host in ["n1", "n2"] {
            cluster.change("disk", &format!("{host} /var/tmp 300000"));
        }
        Some(cluster)
    })
    .as_ref()
}

/// Only one test at a time: they have the same engines.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// hvtui of a person whose engine is that of the first host.
fn hvtui(cluster: &Cluster, client: &Client<'_>, args: &[&str]) -> Command {
    let mut command = client.hvtui(args);
    command.env("DOCKER_HOST", format!("unix://{}", cluster.dir().join("n1/docker/sock").display()));
    command
}

fn run(cluster: &Cluster, client: &Client<'_>, args: &[&str]) -> Ended {
    let out = hvtui(cluster, client, args).output_in_time().expect("hvtui");
    Ended { code: out.status.code().expect("a code"), out: text(&out.stdout), err: text(&out.stderr) }
}

fn push(cluster: &Cluster, client: &Client<'_>, args: &[&str]) -> Ended {
    run(cluster, client, &[&["image", "push"], args].concat())
}

/// An image of this name on the first host: the base, and a file of so many random KiB. Gives its id.
fn image(cluster: &Cluster, name: &str, kib: u32) -> String {
    let line = format!(
        "rm -rf ~/ctx && mkdir ~/ctx && cd ~/ctx && head -c {kib}k /dev/urandom > data && \
         printf 'FROM {IMAGE}\\nCOPY data /data\\n' > Dockerfile && docker build -q -t {name} ."
    );
    let id = cluster.on("n1", &line).trim().to_owned();
    assert!(id.starts_with("sha256:"), "{id}");
    id
}

fn id_on(cluster: &Cluster, host: &str, name: &str) -> String {
    cluster.on(host, &format!("docker image inspect -f '{{{{.Id}}}}' {name}")).trim().to_owned()
}

/// How many bytes of contents wait on a host for their image.
fn staged(cluster: &Cluster, host: &str) -> u64 {
    let line = "find /var/tmp -type f -printf '%s\\n' | awk '{ all += $1 } END { print all + 0 }'";
    cluster.on(host, line).trim().parse().expect("a number")
}

/// A copy that goes on, to the second host.
fn going(cluster: &Cluster, client: &Client<'_>, name: &str) -> Child {
    let mut command = hvtui(cluster, client, &["image", "push", "n2", name]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hvtui")
}

fn ended(child: Child) -> Ended {
    let out = child.output_in_time().expect("its end");
    Ended { code: out.status.code().expect("a code"), out: text(&out.stdout), err: text(&out.stderr) }
}

#[test]
fn an_image_comes_to_all_hosts_and_then_only_what_is_new() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = Client::new(cluster);
    client.write("hosts.toml", &cluster.hosts_toml(2));
    cluster.on("n2", "docker image ls -aq | sort -u | xargs -r docker rmi -f");
    let first = image(cluster, "hvtui-test:one", 3000);
    let dry = push(cluster, &client, &["--dry-run", "hvtui-test:one"]);
    assert_eq!(dry.code, 0, "{dry:#?}");
    assert!(dry.out.contains("✔ n1  has it already\n"), "{dry:#?}");
    assert!(dry.out.contains("· n2  lacks it: docker gets all 2 layers\n"), "{dry:#?}");
    assert_eq!(id_on(cluster, "n2", "hvtui-test:one"), "");
    let pushed = push(cluster, &client, &["hvtui-test:one"]);
    assert_eq!(pushed.code, 0, "{pushed:#?}");
    assert!(
        pushed.err.contains("2 layers") && pushed.err.contains(" is the same on 2 hosts\n"),
        "{pushed:#?}"
    );
    assert!(pushed.out.contains("✔ n2  ") && pushed.out.contains(" copied and loaded in "), "{pushed:#?}");
    assert_eq!(id_on(cluster, "n2", "hvtui-test:one"), first);
    assert_eq!(staged(cluster, "n2"), 0, "nothing stays");
    // ranks run in it, on both hosts
    let ran =
        client.run(&["run", "--image", "hvtui-test:one", "-np", "4", "--", "sh", "-c", "wc -c < /data"]);
    assert_eq!(
        (ran.code, ran.out.lines().filter(|line| line.ends_with(" 3072000")).count()),
        (0, 4),
        "{ran:#?}"
    );
    // what both have is not sent again
    let second = image(cluster, "hvtui-test:one", 200);
    let dry = push(cluster, &client, &["--dry-run", "n2", "hvtui-test:one"]);
    assert_eq!(dry.out, "· n2  lacks it: docker has 1 of its layers and gets 1\n", "{dry:#?}");
    let pushed = push(cluster, &client, &["n2:4", "hvtui-test:one"]);
    assert!(
        pushed.out.starts_with("✔ n2  20") && pushed.out.contains(" K copied"),
        "the new layer alone: {pushed:#?}"
    );
    assert_eq!(id_on(cluster, "n2", "hvtui-test:one"), second);
    // it is there already, if by another name
    let again = push(cluster, &client, &["hvtui-test:one"]);
    assert_eq!(again.out.matches("has it already").count(), 2, "{again:#?}");
    let whole = push(cluster, &client, &["n2", "docker.io/library/hvtui-test:one"]);
    assert_eq!(whole.out, "✔ n2  has it already\n", "its whole name: {whole:#?}");
    cluster.on("n1", "docker tag hvtui-test:one hvtui-test:two");
    let named = push(cluster, &client, &["hvtui-test:two"]);
    assert!(named.out.contains("✔ n2  had it under another name\n"), "{named:#?}");
    assert_eq!(id_on(cluster, "n2", "hvtui-test:two"), second);
    // the same layers, and something else about them
    let third =
        cluster.on("n1", "printf 'FROM hvtui-test:one\nLABEL rev=2\n' | docker build -q -t hvtui-test:one -");
    // one name for two images is what the doctor sees, until that is pushed
    let doctor = || client.run(&["doctor", "--only", "images"]);
    let differ = doctor();
    let id = |id: &str| id.trim().trim_start_matches("sha256:")[..12].to_owned();
    let words = format!("n2: hvtui-test:one is {} (n1 has {})", id(&second), id(&third));
    assert!(
        differ.out.contains(&words) && differ.out.contains("hosts.toml image push hvtui-test:one"),
        "{differ:#?}"
    );
    let pushed = push(cluster, &client, &["n2", "hvtui-test:one"]);
    assert!(pushed.out.contains(" copied and loaded in "), "{pushed:#?}");
    assert_eq!(id_on(cluster, "n2", "hvtui-test:one"), third.trim());
    let same = doctor();
    assert!(same.code == 0 && same.out.contains("✔ images     2 hosts"), "{same:#?}");
}

#[test]
fn a_copy_that_was_cut_goes_on_where_it_was() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = Client::new(cluster);
    // what it stands on is there
    let base = push(cluster, &client, &["n2", IMAGE]);
    assert_eq!(base.code, 0, "{base:#?}");
    let id = image(cluster, "hvtui-test:cut", 48_000);
    cluster.change("rate", "n2 40000");
    // the link is lost and comes back
    let child = going(cluster, &client, "hvtui-test:cut");
    until("a part is there", || staged(cluster, "n2") > 4 << 20);
    cluster.change("cut", "n2");
    std::thread::sleep(std::time::Duration::from_secs(1));
    // as slow as before from its first packet on
    cluster.change("plug", "n2");
    // and the person leaves, later
    until("it goes on", || staged(cluster, "n2") > 9 << 20);
    processes::kill(child.id(), rustix::process::Signal::INT);
    let left = ended(child);
    assert_eq!(left.code, 130, "{left:#?}");
    assert!(left.err.contains("the next push goes on with it"), "{left:#?}");
    let held = staged(cluster, "n2");
    assert!(held > 9 << 20);
    let child = going(cluster, &client, "hvtui-test:cut");
    until("it goes on", || staged(cluster, "n2") > held);
    let done = ended(child);
    assert_eq!(done.code, 0, "{done:#?}");
    let copied = done.out.split_whitespace().nth(2).unwrap_or_default();
    let copied: f64 = copied.trim_end_matches('M').parse().expect("so many MiB");
    assert!(copied < 48.0 - 9.0, "{done:#?}");
    assert_eq!(id_on(cluster, "n2", "hvtui-test:cut"), id);
    assert_eq!(staged(cluster, "n2"), 0);
    cluster.change("heal", "n2");
}

#[test]
fn what_a_host_can_t_take_is_told_and_the_others_get_it() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = Client::new(cluster);
    let absent = push(cluster, &client, &["no-such:1"]);
    assert_eq!(absent.code, 64, "{absent:#?}");
    assert!(absent.err.contains("this machine has no image no-such:1: see `docker images`"), "{absent:#?}");
    let stranger = push(cluster, &client, &["n9", IMAGE]);
    assert!(stranger.code == 64 && stranger.err.contains("n9"), "{stranger:#?}");
    // a disk that is full
    image(cluster, "hvtui-test:large", 6000);
    cluster.change("undisk", "n2 /var/tmp");
    cluster.change("disk", "n2 /var/tmp 4000");
    let full = push(cluster, &client, &["hvtui-test:large"]);
    assert_eq!(full.code, 69, "{full:#?}");
    assert!(full.out.contains("✔ n1  has it already"), "{full:#?}");
    assert!(full.out.contains("✖ n2  write /var/tmp/hvtui-0/images/"), "{full:#?}");
    assert!(
        full.out.contains("no space left on device: make room there; what was copied stays"),
        "{full:#?}"
    );
    cluster.change("undisk", "n2 /var/tmp");
    cluster.change("disk", "n2 /var/tmp 300000");
    // for another machine
    cluster.on("n1", &format!("python3 - <<'E' | docker load\n{FOREIGN}E\n"));
    let odd = push(cluster, &client, &["n2", "hvtui-test:odd"]);
    assert!(
        odd.code == 69 && odd.out.contains("✖ n2  the image is for linux/s390x, and this host is linux/"),
        "{odd:#?}"
    );
    // an engine that is down
    let data = cluster.dir().join("n2/docker");
    // gone, and not only silent: what still ends holds the locks that the next one waits for, or fails on
    let down = format!(
        "pid=$(cat {}/dockerd.pid); kill $pid; while readlink /proc/$pid/exe >/dev/null; do sleep 0.05; done",
        data.display()
    );
    cluster.on("n2", &down);
    let down = push(cluster, &client, &["hvtui-test:large"]);
    assert_eq!(down.code, 69, "{down:#?}");
    assert!(down.out.contains("✖ n2  docker does not run: ") && down.out.contains("✔ n1  "), "{down:#?}");
    let script = format!("{}/tests/cluster/docker", env!("CARGO_MANIFEST_DIR"));
    let started = cluster.on("n2", &format!("{script} {}", data.display()));
    assert!(started.contains("up"), "{started}");
}

#[test]
fn an_image_is_built_here_and_a_dockerfile_that_fails_says_where() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = Client::new(cluster);
    let folder = client.path("Train");
    std::fs::create_dir(&folder).expect("a folder");
    client.write("Train/hello", "hello\n");
    client.write("Train/Dockerfile", &format!("FROM {IMAGE}\nCOPY hello /hello\n"));
    let shown = folder.to_str().expect("a path");
    let built = run(cluster, &client, &["image", "build", shown]);
    assert_eq!(built.code, 0, "{built:#?}");
    let id = id_on(cluster, "n1", "train:latest");
    assert!(built.out.starts_with(&format!("train:latest  {id}  ")), "{built:#?}");
    assert!(built.err.contains("COPY hello /hello"), "the engine's own lines: {built:#?}");
    assert!(built.err.contains("hosts.toml image push train:latest"), "{built:#?}");
    client.write("Train/Other", &format!("FROM {IMAGE}\nCOPY nothing /hello\n"));
    let failed = run(cluster, &client, &["image", "build", &format!("{shown}/Other"), "-t", "other:1"]);
    assert_eq!(failed.code, 64, "{failed:#?}");
    assert!(failed.err.contains("docker build failed: ") && failed.err.contains("nothing"), "{failed:#?}");
    let none = run(cluster, &client, &["image", "build", client.path("").to_str().expect("a path")]);
    assert!(none.code == 64 && none.err.contains("no Dockerfile is in that folder"), "{none:#?}");
    let argument = ["image", "build", shown, "-t", "train:2", "--", "--label", "by=me"];
    let built = run(cluster, &client, &argument);
    assert_eq!(built.code, 0, "{built:#?}");
    let label = cluster.on("n1", "docker image inspect -f '{{.Config.Labels.by}}' train:2");
    assert_eq!(label.trim(), "me");
}
