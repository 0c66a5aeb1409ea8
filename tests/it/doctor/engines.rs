//! Container engines that don't answer, that are not what they are called, that have other ids for the same image, and what they have
//! left. They are scripts that say what the real ones say.

use serde_json::Value;

use super::{json, verdict};
use crate::common::client::Client;
use crate::common::cluster::Cluster;
use crate::common::processes::until;

const DENIED: &str =
    "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock";
const SILENT: &str =
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?";

/// Podman, also where it is called docker.
const PODMAN: &str = r#"case "$1 $2" in
    '--version '*) echo 'podman version 4.3.1';;
    'info '*) echo '{"host":{"arch":"amd64"},"store":{"graphRoot":"/nonexistent"},"version":{"Version":"4.3.1"}}';;
    'image ls') echo 'localhost/train:1 sha256:dddddddddddd0000';;
    'image inspect') echo 'dddddddddddd0000 {"Layers":["sha256:11","sha256:22"]} {"Env":["A=1"],"Cmd":[]}';;
    'ps '*) ;;
    *) exit 125;;
esac
echo 'Emulate Docker CLI using podman. Create /etc/containers/nodocker to quiet msg.' >&2"#;

/// A client that ends well although no daemon answers, as versions from 20.10 to 28.0 do.
fn silent(words: &str) -> String {
    let info = r#"{"ServerVersion":"","DockerRootDir":"","RegistryConfig":null,"Runtimes":null}"#;
    format!("echo '{info}'; echo '{words}' >&2")
}

/// A docker that answers, and has one image.
struct Docker {
    version: &'static str,
    mirrors: &'static str,
    root: &'static str,
    id: &'static str,
    env: &'static str,
}

impl Docker {
    fn of(version: &'static str, id: &'static str) -> Self {
        Self { version, mirrors: "null", root: "/nonexistent", id, env: "A=1" }
    }

    fn script(&self) -> String {
        let Self { version, mirrors, root, id, env } = self;
        format!(
            r#"case "$1 $2" in
    'info '*) echo '{{"ServerVersion":"{version}","DockerRootDir":"{root}","RegistryConfig":{{"Mirrors":{mirrors}}}}}';;
    'image ls') echo 'train:1 sha256:{id}0000';;
    'image inspect') echo 'sha256:{id}0000 {{"Layers":["sha256:11","sha256:22"]}} {{"Env":["{env}"]}}';;
    'ps '*) ;;
    *) exit 1;;
esac"#
        )
    }
}

/// A program of a host's that is found before its own.
fn give(cluster: &Cluster, host: &str, name: &str, script: &str) {
    let file = cluster.dir().join(format!("{host}-{name}"));
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a script");
    let put = format!("mkdir -p ~/bin && cp {} ~/bin/{name} && chmod +x ~/bin/{name}", file.display());
    let show = "mountpoint -q /usr/local/bin || mount --bind ~/bin /usr/local/bin";
    assert_eq!(cluster.on(host, &format!("{put} && {{ {show}; }} && echo done")), "done\n", "{host}: {name}");
}

/// Its mark, what was seen and what helps.
fn of(told: &Value, check: &str, host: &str) -> (String, String, String) {
    let one = verdict(told, check, host);
    let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
    (text("mark"), text("evidence"), text("remedy"))
}

#[test]
fn an_engine_that_does_not_answer_and_one_under_another_name_are_told_apart() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    give(&cluster, "n1", "docker", &silent(DENIED));
    give(&cluster, "n2", "docker", &silent(SILENT));
    give(&cluster, "n3", "docker", PODMAN);
    let told = json(&client.run(&["doctor", "--json", "--only", "docker,images"]));
    let (mark, seen, remedy) = of(&told, "docker", "n1");
    assert_eq!((mark.as_str(), seen.as_str()), ("look", DENIED), "{told:#}");
    assert_eq!(remedy, "usermod -aG docker $USER, then log in again");
    let (mark, seen, remedy) = of(&told, "docker", "n2");
    assert_eq!((mark.as_str(), seen.as_str()), ("look", SILENT), "{told:#}");
    assert!(remedy.contains("start") && !remedy.contains("usermod"), "{remedy}");
    let (mark, seen, _) = of(&told, "docker", "n3");
    assert_eq!((mark.as_str(), seen.as_str()), ("good", "podman 4.3.1 stands in for docker"), "{told:#}");
    assert_eq!(of(&told, "images", "n1").1, "no container engine that answers", "{told:#}");
    assert_eq!(of(&told, "images", "n3").1, "1 image", "{told:#}");

    // the engine that the hosts file names is the one that is asked
    give(&cluster, "n3", "docker", &silent(DENIED));
    give(&cluster, "n3", "podman", PODMAN);
    client.write(
        "hosts.toml",
        &cluster.hosts_toml(1).replace("slots = 1\n", "slots = 1\ncontainer = \"podman\"\n"),
    );
    let docker = || {
        let told = json(&client.run(&["doctor", "--json", "--only", "docker", "-H", "n3"]));
        let (mark, seen, _) = of(&told, "docker", "n3");
        (mark, seen)
    };
    let expected = |mark: &str, seen: &str| (mark.to_owned(), seen.to_owned());
    let named = "podman 4.3.1 starts the containers of runs, as the hosts file says";
    assert_eq!(docker(), expected("good", named));
    let fails = "[ \"$1\" = --version ] && exec echo 'podman version 4.3.1'; echo 'Error: cannot re-exec process' >&2; exit 125";
    give(&cluster, "n3", "podman", fails);
    assert_eq!(docker(), expected("look", "podman: Error: cannot re-exec process"));
}

#[test]
fn one_image_in_other_stores_is_one_image_and_engines_that_differ_are_told() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    let look = || json(&client.run(&["doctor", "--json", "--only", "docker,images"]));
    let marks = |told: &Value, check: &str| ["n1", "n2", "n3"].map(|host| of(told, check, host).0);
    let usual = Docker::of("27.3.1", "aaaaaaaaaaaa");
    give(&cluster, "n1", "docker", &usual.script());
    // containerd's store numbers manifests
    give(&cluster, "n2", "docker", &Docker::of("27.3.0", "bbbbbbbbbbbb").script());
    let other = |mirrors, env| Docker { mirrors, env, ..Docker::of("20.10.24", "cccccccccccc") };
    give(&cluster, "n3", "docker", &other("[\"https://mirror.lan/\"]", "A=2").script());
    let told = look();
    assert_eq!(marks(&told, "docker"), ["good", "good", "look"], "{told:#}");
    let mirror = "its mirror of Docker Hub: https://mirror.lan/ (other hosts have none)";
    assert_eq!(of(&told, "docker", "n3").1, mirror);
    assert_eq!(marks(&told, "images"), ["good", "good", "look"], "{told:#}");
    let differs = "train:1 is cccccccccccc (other hosts have aaaaaaaaaaaa)";
    assert_eq!(of(&told, "images", "n3").1, differs);

    // the same image, in another version of docker
    give(&cluster, "n3", "docker", &other("null", "A=1").script());
    let told = look();
    assert_eq!(marks(&told, "images"), ["good", "good", "good"], "{told:#}");
    assert_eq!(of(&told, "docker", "n3").1, "docker 20.10.24 (other hosts have 27.3)", "{told:#}");

    // podman has it, too, and a disk with little room is told
    give(&cluster, "n3", "docker", PODMAN);
    cluster.change("disk", "n2 /run/small 65536");
    give(
        &cluster,
        "n2",
        "docker",
        &Docker { root: "/run/small", ..Docker::of("27.3.0", "bbbbbbbbbbbb") }.script(),
    );
    let told = look();
    assert_eq!(marks(&told, "images"), ["good", "good", "good"], "{told:#}");
    assert_eq!(marks(&told, "docker"), ["good", "look", "good"], "{told:#}");
    assert!(of(&told, "docker", "n2").1.ends_with(" free at /run/small"), "{told:#}");
}

#[test]
fn a_container_that_has_outlived_its_run_is_told_with_what_removes_it() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let client = Client::new(&cluster);
    let script = |place: &str| {
        let container = r#"[{\"Name\":\"/hvtui-x-r0\",\"Config\":{\"Labels\":{\"hvtui.place\":\"PLACE\"}}}]"#;
        let container = container.replace("PLACE", place);
        format!(
            "case \"$1 $2\" in 'ps -q') echo 0123456789ab;; 'container inspect') echo \"{container}\";; *)\n{}\nesac",
            Docker::of("27.3.1", "aaaaaaaaaaaa").script()
        )
    };
    let docker = || {
        let told = json(&client.run(&["doctor", "--json", "--only", "docker"]));
        of(&told, "docker", "n1")
    };
    // one of another state folder is not of this user's runs
    give(&cluster, "n1", "docker", &script("/nonexistent/hvtui/spool/gone/n1"));
    assert_eq!(docker().0, "good");
    give(&cluster, "n1", "docker", &script("$HOME/.local/state/hvtui/spool/gone/n1"));
    let (mark, seen, remedy) = docker();
    let gone = "1 container may have outlived its run: hvtui-x-r0";
    assert_eq!((mark.as_str(), seen.as_str()), ("look", gone), "its files are not seen from there");
    assert!(remedy.starts_with("hvtui runs tells which runs go on; "), "{remedy}");
    // of a run that says itself that it has ended it is sure
    let ended = client.run(&["run", "-H", "n1:1", "--", "true"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    give(&cluster, "n1", "docker", &script("$(ls -d $HOME/.local/state/hvtui/spool/*/n1@*)"));
    until("its end to be written", || docker().0 == "look");
    let (_, seen, remedy) = docker();
    assert_eq!(seen, "1 container has outlived its run: hvtui-x-r0");
    assert_eq!(remedy, "docker rm --force --volumes hvtui-x-r0");
}
