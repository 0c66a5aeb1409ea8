//! What a pasted `docker run` means here: image, volumes, user and GPUs are kept, what is unsafe or has no meaning is left
//! out and said. Pure.

use super::names;
use super::paste::{Container, Pasted};
use super::remark::Remark;
use crate::domain::container::{ContainerOptions, Volume};

/// The meaning of a `docker run` for ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Meaning {
    /// The containers.
    pub(super) options: ContainerOptions,
    /// The GPUs that it names, by number or UUID.
    pub(super) gpus: Option<Vec<String>>,
    /// How many GPUs it wants, where it names none.
    pub(super) count: Option<u32>,
    /// What is said about it, a sentence each.
    pub(super) remarks: Vec<Remark>,
}

/// Options that say what hvtui does anyway.
const THE_SAME: [&str; 14] = [
    "--rm",
    "--init",
    "--ipc",
    "--pid",
    "--pull",
    "--cidfile",
    "--sig-proxy",
    "-q",
    "--quiet",
    "-a",
    "--attach",
    "--runtime",
    "--platform",
    "--detach-keys",
];
/// Options that go to the engine as they are.
const KEPT: [&str; 34] = [
    "--mount",
    "--tmpfs",
    "--volumes-from",
    "--volume-driver",
    "--device",
    "--device-cgroup-rule",
    "--ulimit",
    "--cap-add",
    "--cap-drop",
    "--security-opt",
    "--group-add",
    "--entrypoint",
    "--add-host",
    "--read-only",
    "--oom-kill-disable",
    "--oom-score-adj",
    "-m",
    "--memory",
    "--memory-swap",
    "--memory-reservation",
    "--kernel-memory",
    "--cpus",
    "-c",
    "--cpu-shares",
    "--cpu-period",
    "--cpu-quota",
    "--cpuset-cpus",
    "--cpuset-mems",
    "--blkio-weight",
    "--pids-limit",
    "--sysctl",
    "--cgroup-parent",
    "--storage-opt",
    "--annotation",
];
/// What of the host's files must not be inside: who has the one is root on the host, who has the other is its user on
/// every host.
const DOCKER_SOCKET: &str = "docker.sock";
const KEYS: [&str; 2] = [".ssh", "ssh"];

/// Whether a path of the host is a home folder, or holds one: then its `.ssh` is in it.
fn holds_homes(path: &str) -> bool {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    let first = names.next();
    match (first, names.next(), names.next()) {
        (Some("~" | "root" | "home" | "Users"), None, _) => path.starts_with(['/', '~']),
        (None, ..) | (Some("home" | "Users"), Some(_), None) => path.starts_with('/'),
        _ => false,
    }
}

/// Reads it.
pub(super) fn meaning(container: &Container) -> Meaning {
    let mut meaning = Meaning {
        options: ContainerOptions {
            user: container.user.clone(),
            workdir: container.workdir.clone(),
            ..ContainerOptions::of(container.image.clone())
        },
        ..Meaning::default()
    };
    for text in &container.volumes {
        meaning.volume(text);
    }
    if let Some(text) = &container.gpus {
        meaning.gpus(text);
    }
    if let Some(network) = container.network.as_deref().filter(|network| *network != "host") {
        let text = format!(
            "`--network {network}` is left out: ranks use their host's network, to reach the other hosts"
        );
        meaning.remarks.push(Remark::info(format!("{text}.")));
    }
    for option in &container.others {
        meaning.option(option);
    }
    meaning
}

impl Meaning {
    /// The line with the variables and the GPUs of its container, unless it says something else itself.
    pub(super) fn joined(&self, line: &Pasted) -> Pasted {
        let mut line = line.clone();
        let Some(container) = &line.container else { return line };
        let has = |name: &String, line: &Pasted| line.env.iter().any(|(one, _)| one == name);
        for (name, value) in container.env.clone() {
            if !has(&name, &line) {
                line.env.push((name, value));
            }
        }
        let from_here = line.container.iter().flat_map(|container| container.env_from_here.clone());
        let from_here: Vec<String> = from_here.filter(|name| !has(name, &line)).collect();
        line.env_from_here.extend(from_here);
        line.gpu_mask = line.gpu_mask.take().or_else(|| self.gpus.clone());
        line
    }

    fn say(&mut self, text: String) {
        self.add(Remark::info(text));
    }

    fn warn(&mut self, text: String) {
        self.add(Remark::warning(text));
    }

    fn add(&mut self, remark: Remark) {
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    fn volume(&mut self, text: &str) {
        let mut parts = text.split(':');
        let (source, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if !self.may_mount(&format!("-v {text}"), source, target) {
            return;
        }
        match text.parse::<Volume>() {
            Ok(volume) => self.options.volumes.push(volume),
            Err(fault) => self.warn(format!("`-v {text}` is left out: it {fault}.")),
        }
    }

    /// Whether these files of the host may be inside; what is left out, and what can be read there, is said.
    fn may_mount(&mut self, shown: &str, source: &str, target: &str) -> bool {
        let is_key = |part: &str| part.split('/').any(|name| KEYS.contains(&name));
        if is_key(source) || is_key(target) {
            self.warn(format!(
                "`{shown}` is left out: what runs in the container could read the keys, and hvtui needs no ssh between hosts \
                 or in containers."
            ));
            return false;
        }
        if source.ends_with(DOCKER_SOCKET) {
            self.warn(format!(
                "`{shown}` is left out: a process that can use docker's socket is root on the host. Where it is needed, give it \
                 by hvtui's own -v."
            ));
            return false;
        }
        if holds_homes(source) {
            self.warn(format!(
                "`{shown}`: what runs in the container can read the ssh keys in ~/.ssh; mount only the folders that the job \
                 needs."
            ));
        }
        true
    }

    /// `type=bind,source=/data,target=/data,readonly`.
    fn mount(&mut self, shown: &str, text: &str) -> bool {
        let value = |names: [&str; 3]| {
            let mut pairs = text.split(',').filter_map(|part| part.trim_matches(['"', '\'']).split_once('='));
            pairs.find(|(name, _)| names.contains(&name.trim())).map_or("", |(_, value)| value.trim())
        };
        let (source, target) = (value(["source", "src", "from"]), value(["target", "dst", "destination"]));
        self.may_mount(shown, source, target)
    }

    /// `all`, `2`, `device=0,1`, `"device=GPU-…"`, `all,capabilities=utility`.
    fn gpus(&mut self, text: &str) {
        let text = text.trim_matches(['"', '\'']);
        if let Ok(count) = text.parse::<u32>() {
            self.count = Some(count);
            return;
        }
        let Some((_, list)) = text.split_once("device=") else { return };
        let known = list
            .trim_matches(['"', '\''])
            .split(',')
            .map(|gpu| gpu.trim_matches(['"', '\'', ' ']).to_owned());
        let known: Vec<String> =
            known.filter(|gpu| !gpu.contains('=') && names::slot_name(gpu).is_some()).collect();
        self.gpus = Some(known).filter(|gpus| !gpus.is_empty());
    }

    fn option(&mut self, words: &[String]) {
        let Some(name) = words.first().map(String::as_str) else { return };
        let shown = words.join(" ");
        match name {
            "-i" | "-t" | "--interactive" | "--tty" => {
                self.say(format!("`{shown}` is left out: ranks have no terminal."));
            }
            "-d" | "--detach" => self.say(format!("`{shown}` is left out: `hvtui run --detach` does that.")),
            "--privileged" => self.say(
                "`--privileged` is left out: it makes the ranks root on the host, and none of them needs that; for RDMA \
                 they get /dev/infiniband and locked memory."
                    .to_owned(),
            ),
            "--shm-size" => {
                self.say(format!("`{shown}` is left out: ranks have the shared memory of their host."));
            }
            "-p" | "--publish" | "-P" | "--publish-all" | "--expose" | "--link" => {
                self.say(format!("`{shown}` is left out: on their host's network all ports are reached."));
            }
            "--restart" => self.say(format!("`{shown}` is left out: `hvtui run --max-restarts N` does that.")),
            "--env-file" => self.say(format!(
                "`{shown}` is left out: give the file by `hvtui run --secret-file`, its values are shown nowhere."
            )),
            "--mount" if !self.mount(&shown, &words[1..].join(" ")) => {}
            _ if THE_SAME.contains(&name) => {}
            _ if KEPT.contains(&name) => {
                // one word each, as the value of an option may begin with a dash
                match words {
                    [name, value] if name.starts_with("--") => self.options.arguments.push(format!("{name}={value}")),
                    words => self.options.arguments.extend(words.iter().cloned()),
                }
            }
            _ => self.say(format!("`{shown}` is left out: it has no meaning for ranks.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unsafe_is_left_out_and_said_and_the_rest_is_kept() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let container = Container {
            engine: "docker".to_owned(),
            image: "horovod/horovod:0.28".to_owned(),
            volumes: [
                "~/.ssh:~/.ssh",
                "/data/keras:/root/.keras/datasets",
                "/var/run/docker.sock:/var/run/docker.sock",
                "x:y",
            ]
            .map(str::to_owned)
            .to_vec(),
            gpus: Some("\"device=0,GPU-3f2a\"".to_owned()),
            network: Some("bridge".to_owned()),
            user: Some("1000:1000".to_owned()),
            others: [
                "-i",
                "-t",
                "--privileged",
                "--rm",
                "--ipc host",
                "--ulimit memlock=-1",
                "--shm-size 8g",
                "-h me",
            ]
            .map(words)
            .to_vec(),
            ..Container::default()
        };
        let meaning = meaning(&container);
        assert_eq!(meaning.options.volumes.len(), 1);
        assert_eq!(meaning.options.arguments, ["--ulimit=memlock=-1"]);
        assert_eq!(meaning.options.user.as_deref(), Some("1000:1000"));
        assert_eq!(meaning.gpus, Some(vec!["0".to_owned(), "GPU-3f2a".to_owned()]));
        let begins = [
            "`-v ~/.ssh:~/.ssh` is left out: what runs",
            "`-v /var/run/docker.sock:/var/run/docker.sock` is left out: a process",
            "`-v x:y` is left out: it must have",
            "`--network bridge` is left out",
            "`-i` is left out: ranks have no terminal",
            "`-t` is left out",
            "`--privileged` is left out: it makes",
            "`--shm-size 8g` is left out",
            "`-h me` is left out: it has no meaning",
        ];
        assert_eq!(meaning.remarks.len(), begins.len(), "{:#?}", meaning.remarks);
        for (remark, begin) in meaning.remarks.iter().zip(begins) {
            assert!(remark.starts_with(begin), "{remark}");
        }
    }

    #[test]
    fn keys_are_kept_out_however_they_are_mounted() {
        let said = |volume: &str, option: &str| {
            let container = Container {
                volumes: Some(volume).filter(|one| !one.is_empty()).map(str::to_owned).into_iter().collect(),
                others: Some(option)
                    .filter(|one| !one.is_empty())
                    .map(|one| one.split(' ').map(str::to_owned).collect())
                    .into_iter()
                    .collect(),
                ..Container::default()
            };
            let meaning = meaning(&container);
            let kept = meaning.options.volumes.len() + meaning.options.arguments.len();
            (kept, meaning.remarks.iter().map(|remark| &**remark).collect::<String>())
        };
        for option in [
            "--mount type=bind,source=~/.ssh,target=/root/.ssh",
            "--mount type=bind,src=/home/li/.ssh/id_ed25519,dst=/key",
            "--mount type=bind,\"source=/etc/ssh\",target=/x,readonly",
        ] {
            let (kept, remark) = said("", option);
            assert!(kept == 0 && remark.starts_with(&format!("`{option}` is left out: what")), "{remark}");
        }
        let (kept, remark) =
            said("", "--mount type=bind,source=/var/run/docker.sock,target=/var/run/docker.sock");
        assert!(kept == 0 && remark.contains("is root on the host"), "{remark}");
        for volume in
            ["~:/root", "~/:/root", "/root:/root", "/home/li/:/home/li", "/home:/home:ro", "/:/host"]
        {
            let (kept, remark) = said(volume, "");
            assert!(kept == 1 && remark.contains("can read the ssh keys in ~/.ssh"), "{volume}: {remark}");
        }
        let (kept, remark) = said("", "--mount type=bind,source=/home/li,target=/home/li");
        assert!(kept == 1 && remark.contains("can read the ssh keys"), "{remark}");
        for volume in ["~/data:/data", "/home/li/data:/data", "/data:/root", "home:/x", "/rootfs:/x"] {
            assert_eq!(said(volume, ""), (1, String::new()), "{volume}");
        }
        assert_eq!(said("", "--mount type=tmpfs,target=/scratch"), (1, String::new()));
    }

    #[test]
    fn gpus_are_counted_or_named() {
        let of = |text: &str| {
            let container = Container { gpus: Some(text.to_owned()), ..Container::default() };
            let meaning = meaning(&container);
            (meaning.gpus.map(|gpus| gpus.len()), meaning.count)
        };
        assert_eq!(of("all"), (None, None));
        assert_eq!(of("all,capabilities=utility"), (None, None));
        assert_eq!(of("2"), (None, Some(2)));
        assert_eq!(of("device=0,1"), (Some(2), None));
        assert_eq!(of("\"device=1\",capabilities=compute"), (Some(1), None));
    }
}
