//! The rules for single values: one function each, which gives the checked value or the fault with its
//! remedy. Must not know how values are merged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::{Spanned, Value};

use super::error::Problem;
use super::file::{Command, Text};
use super::host::{Address, SlotCount, Transport};
use crate::domain::container::{Volume, VolumeFault};
use crate::domain::ids::HostId;
use crate::domain::occupancy::FreeMemory;
use crate::domain::question::HostKeyPolicy;
use crate::domain::redaction::MASK;
use crate::domain::run::{JobKind, MinFree};
use crate::domain::text::closest;
use crate::launch::folder;
use crate::launch::names;
use crate::launch::request::Pick;

type Checked<T> = Result<T, Problem>;

/// A host's or a recipe's name. `what` is which of them.
pub(super) fn validate_name(what: &str, name: &Text) -> Checked<String> {
    match names::name_fault(name.get_ref()) {
        None => Ok(name.get_ref().clone()),
        Some(fault) => Err(Problem::new(
            name.span(),
            format!("{what} name `{}` {fault}", name.get_ref()),
            "use 1 to 64 of letters, digits, `.`, `_` and `-`, such as `gpu-a`",
        )),
    }
}

/// `local`, a name, or an IP address.
pub(super) fn validate_address(address: &Text) -> Checked<Address> {
    let text = address.get_ref().as_str();
    if text == "local" {
        return Ok(Address::Local);
    }
    let bad = |title: String, remedy: &str| Err(Problem::new(address.span(), title, remedy));
    if let Some((user, host)) = text.split_once('@') {
        let remedy = format!("write address = \"{host}\" and user = \"{user}\"");
        return bad(format!("address `{text}` holds a user"), &remedy);
    }
    let colons = text.matches(':').count();
    if let (1, Some((host, port))) = (colons, text.split_once(':')) {
        let remedy = format!("write address = \"{host}\" and port = {port}");
        return bad(format!("address `{text}` holds a port"), &remedy);
    }
    if text.starts_with('[') {
        return bad(format!("address `{text}` is in brackets"), "write the IPv6 address without brackets");
    }
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '%');
    let is_name = (1..=253).contains(&text.len()) && !text.starts_with('-') && text.chars().all(letter);
    if !is_name
        || (colons > 1 && text.split('%').next().is_none_or(|ip| ip.parse::<std::net::Ipv6Addr>().is_err()))
    {
        return bad(
            format!("address `{text}` is no name and no IP address"),
            "write a name (gpu-a.example.org), an IP address (10.0.0.11), or `local` for this machine",
        );
    }
    Ok(Address::Ssh(text.to_owned()))
}

/// A login name.
pub(super) fn validate_user(user: &Text) -> Checked<String> {
    let text = user.get_ref();
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '\\' | '+' | '$');
    if (1..=64).contains(&text.len()) && !text.starts_with('-') && text.chars().all(letter) {
        return Ok(text.clone());
    }
    let title = format!("user `{text}` is no login name");
    Err(Problem::new(
        user.span(),
        title,
        "use letters, digits, `.`, `_`, `-`, `@`, `+`, `\\`, `$`; no `-` first",
    ))
}

/// A TCP port.
pub(super) fn validate_port(port: &Spanned<Value>) -> Checked<u16> {
    let number = port.get_ref().as_integer().and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
    number.ok_or_else(|| {
        let title = format!("port {} is no TCP port", port.get_ref());
        Problem::new(port.span(), title, "write a number from 1 to 65535; ssh's usual port is 22")
    })
}

/// A private key file that exists; `~` is `home`.
pub(super) fn validate_identity(identity: &Text, home: &Path) -> Checked<PathBuf> {
    let text = identity.get_ref();
    let path = match text.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => PathBuf::from(text),
    };
    let bad = |title: String, remedy: &str| Err(Problem::new(identity.span(), title, remedy));
    if !path.is_absolute() {
        return bad(
            format!("identity `{text}` is a relative path"),
            "write the whole path, or one that begins with `~/`",
        );
    }
    if path.extension().is_some_and(|extension| extension == "pub") {
        return bad(format!("identity `{text}` is the public half"), "name the key file without `.pub`");
    }
    match std::fs::metadata(&path) {
        Ok(meta) if meta.is_file() => Ok(path),
        Ok(_) => bad(format!("identity `{text}` is no file"), "name the private key file itself"),
        Err(error) => bad(
            format!("identity `{text}` can't be used: {error}"),
            "correct the path, or leave the key out to use your ssh-agent and the usual files in ~/.ssh",
        ),
    }
}

/// `user@host:port,…`, or `none`.
pub(super) fn validate_jump(jump: &Text) -> Checked<String> {
    let text = jump.get_ref();
    let letter = |c: char| c.is_ascii_alphanumeric() || "._-@:[]%+\\$".contains(c);
    let is_hop = |hop: &str| {
        let (user, name) = (hop.rsplit_once('@').map(|(user, _)| user), names::jump_name(hop));
        let port = hop.rsplit_once(':').filter(|(name, _)| !name.contains(':') || name.ends_with(']'));
        hop.chars().all(letter)
            && [Some(name), user].into_iter().flatten().all(|part| !part.is_empty() && !part.starts_with('-'))
            && port.is_none_or(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0))
    };
    if text.split(',').all(|hop| is_hop(hop.trim())) {
        return Ok(text.clone());
    }
    Err(Problem::new(
        jump.span(),
        format!("jump `{text}` is no list of hosts"),
        "write the hosts to go through, such as \"bastion\" or \"ml@bastion:2222,inner\"; \"none\" for none",
    ))
}

/// Whose ssh is used.
pub(super) fn validate_transport(transport: &Text) -> Checked<Transport> {
    match transport.get_ref().as_str() {
        "auto" => Ok(Transport::Auto),
        "russh" => Ok(Transport::Russh),
        "openssh" => Ok(Transport::OpenSsh),
        other => Err(Problem::new(
            transport.span(),
            format!("unknown transport `{other}`"),
            "write \"russh\" for hvtui's own ssh, \"openssh\" for the system's, or \"auto\"",
        )),
    }
}

/// `SHA256:` and an unpadded base64 of 32 bytes.
pub(super) fn validate_fingerprint(fingerprint: &Text) -> Checked<String> {
    let text = fingerprint.get_ref();
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/');
    let hash = text.strip_prefix("SHA256:").unwrap_or("");
    if hash.len() == 43 && hash.chars().all(letter) {
        return Ok(text.clone());
    }
    Err(Problem::new(
        fingerprint.span(),
        format!("`{text}` is no host key fingerprint"),
        "write `SHA256:` and 43 characters, as `ssh-keygen -lf` and `hvtui hosts trust` print it",
    ))
}

/// What is done with an unknown host key.
pub(super) fn validate_host_keys(policy: &Text) -> Checked<HostKeyPolicy> {
    match policy.get_ref().as_str() {
        "strict" => Ok(HostKeyPolicy::Strict),
        "ask" => Ok(HostKeyPolicy::Ask),
        "accept-new" => Ok(HostKeyPolicy::AcceptNew),
        other => Err(Problem::new(
            policy.span(),
            format!("host_keys = \"{other}\" is no way to treat unknown host keys"),
            "write \"strict\", \"ask\" or \"accept-new\"; there is no way not to check them",
        )),
    }
}

/// A network interface's kernel name.
pub(super) fn validate_interface(interface: &Text) -> Checked<String> {
    let text = interface.get_ref();
    let letter = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%');
    if (1..=15).contains(&text.len()) && text.chars().all(letter) {
        return Ok(text.clone());
    }
    let title = format!("`{text}` is no name of a network interface");
    Err(Problem::new(interface.span(), title, "write one that `ip link` lists on the host, such as `eth0`"))
}

/// `auto` or a number of CPU slots.
pub(super) fn validate_slots(slots: &Spanned<Value>) -> Checked<SlotCount> {
    let count = match slots.get_ref() {
        Value::String(text) if text == "auto" => return Ok(SlotCount::Auto),
        Value::Integer(count) => u32::try_from(*count).ok().filter(|n| (1..=4096).contains(n)),
        _ => None,
    };
    count.map(SlotCount::Cpus).ok_or_else(|| {
        let title = format!("slots = {} is no number of slots", slots.get_ref());
        Problem::new(slots.span(), title, "write \"auto\", or a number of CPU slots from 1 to 4096")
    })
}

/// A word for people.
pub(super) fn validate_label(label: &Text) -> Checked<String> {
    let text = label.get_ref();
    if (1..=64).contains(&text.chars().count()) && !text.chars().any(char::is_control) {
        return Ok(text.clone());
    }
    Err(Problem::new(
        label.span(),
        "label is empty, longer than 64, or holds control characters",
        "shorten it",
    ))
}

/// The name of a view, as it is shown.
pub(super) fn validate_view_name(name: &Text) -> Checked<String> {
    let text = name.get_ref().trim();
    if (1..=40).contains(&text.chars().count()) && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(Problem::new(
        name.span(),
        "the name of a view is empty, longer than 40, or holds control characters",
        "shorten it",
    ))
}

/// Variables: text, or numbers and booleans taken as they are written.
pub(super) fn validate_env(
    env: &BTreeMap<Text, Spanned<Value>>,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, String> {
    let mut checked = BTreeMap::new();
    for (key, value) in env {
        if let Some(fault) = names::env_fault(key.get_ref()) {
            let title = format!("variable `{}` {fault}", key.get_ref());
            problems.push(Problem::new(key.span(), title, "leave it out, or give it another name"));
            continue;
        }
        let text = match value.get_ref() {
            Value::String(text) if !text.contains('\0') => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(truth) => truth.to_string(),
            _ => {
                let title = format!("the value of variable `{}` is no text", key.get_ref());
                problems.push(Problem::new(value.span(), title, "write it in quotes"));
                continue;
            }
        };
        checked.insert(key.get_ref().clone(), text);
    }
    checked
}

/// Names of variables whose values are taken from this process's environment, and shown nowhere.
pub(super) fn validate_secret_env(names: &[Text], problems: &mut Vec<Problem>) -> BTreeMap<String, String> {
    let mut checked = BTreeMap::new();
    for name in names {
        match names::env_fault(name.get_ref()) {
            None => drop(checked.insert(name.get_ref().clone(), MASK.to_owned())),
            Some(fault) => {
                let title = format!("variable `{}` {fault}", name.get_ref());
                problems.push(Problem::new(
                    name.span(),
                    title,
                    "give the name alone: its value stays out of this file",
                ));
            }
        }
    }
    checked
}

/// The directory on the host in which leases lie.
pub(super) fn validate_lease_dir(dir: &Text) -> Checked<String> {
    let text = dir.get_ref();
    let plain = !text.contains("//") && !text.split('/').any(|part| part == "." || part == "..");
    if text.len() > 1 && text.starts_with('/') && plain && !text.chars().any(char::is_control) {
        return Ok(text.clone());
    }
    let title = format!("lease_dir = {text:?} is no absolute path");
    let remedy = "write the directory's real path on the host, such as \"/var/lib/hvtui-leases\"";
    Err(Problem::new(dir.span(), title, remedy))
}

/// A directory on the host.
pub(super) fn validate_workdir(workdir: &Text) -> Checked<String> {
    let text = workdir.get_ref();
    if names::is_workdir(text) {
        return Ok(text.clone());
    }
    let title = format!("workdir `{text}` is a relative path");
    Err(Problem::new(workdir.span(), title, "write the whole path on the host, or one that begins with `~/`"))
}

/// A path on the host that is about the agent.
pub(super) fn validate_remote_path(key: &str, path: &Text) -> Checked<String> {
    let text = path.get_ref();
    let rooted = text.starts_with('/') || text.starts_with("~/");
    if rooted && text.len() <= 1024 && !text.chars().any(char::is_control) {
        return Ok(text.clone());
    }
    let title = format!("{key} `{text}` is no whole path");
    Err(Problem::new(path.span(), title, "write the whole path on the host, or one that begins with `~/`"))
}

/// Whether hvtui may be put on the host.
pub(super) fn validate_install(install: &Spanned<Value>) -> Checked<bool> {
    install.get_ref().as_bool().ok_or_else(|| {
        let title = format!("install = {} is neither true nor false", install.get_ref());
        Problem::new(install.span(), title, "write false to forbid that hvtui is put on the host")
    })
}

/// Whether hooks are put into the ranks' Pythons.
pub(super) fn validate_python_hooks(hooks: &Spanned<Value>) -> Checked<bool> {
    hooks.get_ref().as_bool().ok_or_else(|| {
        let title = format!("python_hooks = {} is neither true nor false", hooks.get_ref());
        Problem::new(hooks.span(), title, "write false to leave the Pythons of its ranks alone")
    })
}

/// How much is kept of what a rank prints.
pub(super) fn validate_spool_cap(cap: &Text) -> Checked<u64> {
    let text = cap.get_ref();
    names::spool_cap(text).ok_or_else(|| {
        let title = format!("spool_cap `{text}` is no size of 1M or more");
        Problem::new(
            cap.span(),
            title,
            "write how much is kept of what a rank prints, such as \"256M\" or \"2G\"",
        )
    })
}

/// What stays free on the host's disk.
pub(super) fn validate_min_free(least: &Text) -> Checked<MinFree> {
    let text = least.get_ref();
    names::min_free(text).ok_or_else(|| {
        let title = format!("min_free `{text}` is no size and no share of up to 90%");
        Problem::new(
            least.span(),
            title,
            "write what is to stay free on the host's disk, such as \"5%\" or \"10G\"",
        )
    })
}

/// How much memory may be in use on a free GPU.
pub(super) fn validate_free_memory(memory: &Text) -> Checked<FreeMemory> {
    let text = memory.get_ref();
    names::free_memory(text).ok_or_else(|| {
        let title = format!("free_memory `{text}` is no size and no share of up to 90%");
        Problem::new(
            memory.span(),
            title,
            "write how much memory may be in use on a GPU that counts as free, such as \"5%\" or \"2G\"",
        )
    })
}

/// After how long of silence ranks are ended, in milliseconds; 0: never.
pub(super) fn validate_max_silence(silence: &Text) -> Checked<u64> {
    let text = silence.get_ref();
    names::max_silence(text).ok_or_else(|| {
        let title = format!("max_silence `{text}` is no length of time of 1s or more");
        let remedy = "write after how long of silence ranks are ended, such as \"30m\" or \"2h\", or \"off\"";
        Problem::new(silence.span(), title, remedy)
    })
}

/// How a recipe's command is started, as `--kind` takes it.
pub(super) fn validate_kind(kind: &Text) -> Checked<JobKind> {
    let text = kind.get_ref();
    JobKind::named(text).ok_or_else(|| {
        let title = format!("unknown kind `{text}`");
        Problem::new(kind.span(), title, known("kinds", text, &JobKind::ALL.map(JobKind::name)))
    })
}

/// A command of at least one word.
pub(super) fn validate_command(command: &Spanned<Command>) -> Checked<Vec<String>> {
    let words = match command.get_ref() {
        Command::Words(words) => Some(words.clone()),
        Command::Line(line) => shlex::split(line),
    };
    let bad = |title: &str, remedy: &str| Err(Problem::new(command.span(), title, remedy));
    match words {
        None => {
            bad("a quote in the command is not closed", "close it, or write the command as a list of words")
        }
        Some(words) if words.first().is_none_or(String::is_empty) => {
            bad("the command is empty", "write what to run, such as \"hvtui train digits\"")
        }
        Some(words) if words.iter().any(|word| word.contains('\0')) => {
            bad("the command holds a NUL character", "leave it out")
        }
        Some(words) => Ok(words),
    }
}

/// A number of ranks.
pub(super) fn validate_np(np: &Spanned<Value>) -> Checked<u32> {
    let count = np.get_ref().as_integer().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
    count.ok_or_else(|| {
        let title = format!("np = {} is no number of ranks", np.get_ref());
        Problem::new(np.span(), title, "write a number from 1 on")
    })
}

/// `host:slot` with a host that the file names.
pub(super) fn validate_pick(pick: &Text, hosts: &[&str]) -> Checked<Pick> {
    let text = pick.get_ref();
    let parts = text.split_once(':').and_then(|(host, slot)| Some((host, names::slot_name(slot)?)));
    let Some((host, slot)) = parts else {
        let title = format!("`{text}` is no slot");
        return Err(Problem::new(
            pick.span(),
            title,
            "write host:number or host:GPU-uuid, such as \"gpu-a:0\"",
        ));
    };
    if !hosts.contains(&host) {
        let title = format!("recipe names unknown host `{host}`");
        return Err(Problem::new(pick.span(), title, known("hosts", host, hosts)));
    }
    Ok(Pick { host: HostId::from(host), slot })
}

/// The program of a container engine: a name, or a whole path.
pub(super) fn validate_container(engine: &Text) -> Checked<String> {
    let text = engine.get_ref();
    let plain = !text.is_empty() && !text.starts_with('-') && !text.chars().any(char::is_whitespace);
    if plain && (text.starts_with('/') || !text.contains('/')) {
        return Ok(text.clone());
    }
    let title = format!("container = {text:?} is no program");
    let remedy = "write the name of a container engine, such as \"podman\", or its whole path there";
    Err(Problem::new(engine.span(), title, remedy))
}

/// The image of a recipe.
pub(super) fn validate_image(image: &Text) -> Checked<String> {
    let text = image.get_ref();
    if !text.trim().is_empty() && !text.starts_with('-') && !text.chars().any(char::is_control) {
        return Ok(text.clone());
    }
    let title = format!("image = {text:?} can't be the name of an image");
    Err(Problem::new(image.span(), title, "write one such as \"pytorch/pytorch:latest\""))
}

/// A volume of a recipe.
pub(super) fn validate_volume(volume: &Text) -> Checked<Volume> {
    let text = volume.get_ref();
    text.parse().map_err(|fault: VolumeFault| {
        let title = format!("volume {text:?} {fault}");
        Problem::new(volume.span(), title, "write the place on the hosts, a colon and the place inside")
    })
}

/// A recipe's folder, `DIR[:REMOTE]`; where it is stands fast with the launch.
pub(super) fn validate_sync(text: &Text) -> Checked<String> {
    let written = text.get_ref();
    match folder::folder(written, false, "/here", "/home") {
        Ok(_) => Ok(written.clone()),
        Err(fault) => {
            let title = format!("sync = {written:?} can't be read: {fault}");
            Err(Problem::new(text.span(), title, "write sync = \".\" or sync = \"DIR:~/PATH\""))
        }
    }
}

/// What to do about a word that is none of `known`.
pub(super) fn known(what: &str, typed: &str, known: &[&str]) -> String {
    let list = known.join(", ");
    match closest(typed, known.iter().copied()) {
        Some(closest) => format!("did you mean `{closest}`? known {what}: {list}"),
        None => format!("known {what}: {list}"),
    }
}
