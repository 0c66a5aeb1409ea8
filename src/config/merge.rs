//! From the written file to checked hosts and recipes: a host's own key counts before `[defaults]`, and every
//! fault is collected.

use std::path::Path;

use toml::Spanned;

use super::error::{ConfigError, Problem};
use super::file::{File, HostTable, RecipeTable, Text};
use super::host::{Address, HostConfig, HostsFile, Recipe, RecipeWhere, SlotCount};
use super::validate;
use super::{alerts, environment, retention};
use crate::domain::container::ContainerOptions;
use crate::domain::environment::EnvironmentPlan;
use crate::domain::filter::{Filter, View};
use crate::domain::ids::HostId;
use crate::domain::occupancy::FreeMemory;
use crate::domain::run::Spool;
use crate::launch::names;

/// Reads `text` as the hosts file at `path`. `home` is what `~` means in the path of an identity file.
pub(super) fn hosts_file(path: &Path, text: String, home: &Path) -> Result<HostsFile, ConfigError> {
    let invalid = |text, problems| Err(ConfigError::Invalid { path: path.to_owned(), text, problems });
    let file: File = match toml::from_str(&text) {
        Ok(file) => file,
        Err(error) => {
            let problem = from_toml(&error, &text);
            return invalid(text, vec![problem]);
        }
    };
    let mut faults = Faults::default();
    let hosts = hosts(&file, home, &mut faults);
    let recipes = recipes(&file, &mut faults);
    let views = views(&file, &mut faults);
    let alerts = file.alerts.as_ref().map(|table| alerts::of(table, &mut |problem| faults.add(problem)));
    let alerts = alerts.unwrap_or_default();
    let retention = file.runs.as_ref().map(|table| retention::of(table, &mut |problem| faults.add(problem)));
    let retention = retention.unwrap_or_default();
    let runs = file.runs.as_ref();
    let max_recording =
        runs.and_then(|table| retention::recording(table, &mut |problem| faults.add(problem)));
    if faults.0.is_empty() {
        Ok(HostsFile { path: Some(path.to_owned()), hosts, recipes, views, alerts, retention, max_recording })
    } else {
        faults.0.sort_by_key(|problem| problem.span.start);
        invalid(text, faults.0)
    }
}

/// The faults so far, each place once: a bad default is met again for every host.
#[derive(Default)]
struct Faults(Vec<Problem>);

impl Faults {
    fn add(&mut self, problem: Problem) {
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    fn check<T>(&mut self, checked: Result<T, Problem>) -> Option<T> {
        checked.map_err(|problem| self.add(problem)).ok()
    }

    fn take(&mut self, problems: Vec<Problem>) {
        for problem in problems {
            self.add(problem);
        }
    }
}

fn hosts(file: &File, home: &Path, faults: &mut Faults) -> Vec<HostConfig> {
    let none = HostTable::default();
    let defaults = file.defaults.as_ref().unwrap_or(&none);
    for (key, value) in
        [("name", &defaults.name), ("address", &defaults.address), ("fingerprint", &defaults.fingerprint)]
    {
        if let Some(value) = value {
            let title = format!("`{key}` in [defaults] would be the same for every host");
            faults.add(Problem::new(value.span(), title, "move it into the [[host]] that it belongs to"));
        }
    }
    if file.host.is_empty() {
        let remedy = "add a [[host]] with name and address; `hvtui config template` prints an example";
        faults.add(Problem::new(0..0, "the file names no host", remedy));
    }
    unique("host", file.host.iter().filter_map(|host| host.get_ref().name.as_ref()), faults);
    let mut hosts: Vec<HostConfig> =
        file.host.iter().filter_map(|table| host(table, defaults, home, faults)).collect();
    let all = hosts.clone();
    for host in &mut hosts {
        host.jump_hosts = jump_hosts(host, &all);
    }
    hosts
}

/// The hosts of the file by which a host is reached, however many lie between.
fn jump_hosts(host: &HostConfig, all: &[HostConfig]) -> Vec<HostConfig> {
    let mut found: Vec<HostConfig> = Vec::new();
    let mut open = vec![host];
    while let Some(host) = open.pop() {
        for name in host.jump.iter().flat_map(|jump| jump.split(',')).map(names::jump_name) {
            let named = all.iter().find(|other| other.id.as_str() == name);
            if let Some(named) = named.filter(|named| found.iter().all(|known| known.id != named.id)) {
                found.push(named.clone());
                open.push(named);
            }
        }
    }
    found
}

fn host(
    table: &Spanned<HostTable>,
    defaults: &HostTable,
    home: &Path,
    faults: &mut Faults,
) -> Option<HostConfig> {
    let (span, table) = (table.span(), table.get_ref());
    let name = required("name", "gpu-a", table.name.as_ref(), &span, faults)
        .and_then(|name| faults.check(validate::validate_name("host", name)));
    let address = required("address", "10.0.0.11", table.address.as_ref(), &span, faults)
        .and_then(|address| faults.check(validate::validate_address(address)));
    let local = address == Some(Address::Local);
    if local {
        ssh_keys_of_local(table, faults);
    }
    // Checked even where it is not used, so that a bad default is found; this machine takes none of it.
    let user = layer(table.user.as_ref(), defaults.user.as_ref())
        .and_then(|user| faults.check(validate::validate_user(user)))
        .filter(|_| !local);
    let port = layer(table.port.as_ref(), defaults.port.as_ref())
        .and_then(|port| faults.check(validate::validate_port(port)))
        .filter(|_| !local);
    let identity = layer(table.identity.as_ref(), defaults.identity.as_ref())
        .and_then(|identity| faults.check(validate::validate_identity(identity, home)))
        .filter(|_| !local);
    let fingerprint = table
        .fingerprint
        .as_ref()
        .and_then(|key| faults.check(validate::validate_fingerprint(key)))
        .filter(|_| !local);
    let host_keys = layer(table.host_keys.as_ref(), defaults.host_keys.as_ref())
        .and_then(|policy| faults.check(validate::validate_host_keys(policy)))
        .filter(|_| !local);
    let jump = layer(table.jump.as_ref(), defaults.jump.as_ref())
        .and_then(|jump| faults.check(validate::validate_jump(jump)))
        .filter(|_| !local);
    let transport = layer(table.transport.as_ref(), defaults.transport.as_ref())
        .and_then(|transport| faults.check(validate::validate_transport(transport)))
        .filter(|_| !local);
    let interface = layer(table.interface.as_ref(), defaults.interface.as_ref())
        .and_then(|interface| faults.check(validate::validate_interface(interface)));
    let slots = layer(table.slots.as_ref(), defaults.slots.as_ref())
        .and_then(|slots| faults.check(validate::validate_slots(slots)));
    let labels = layer(table.labels.as_ref(), defaults.labels.as_ref()).into_iter().flatten();
    let labels = labels.filter_map(|label| faults.check(validate::validate_label(label))).collect();
    let mut problems = Vec::new();
    let mut env = std::collections::BTreeMap::new();
    // A host's variables join the defaults' instead of replacing them.
    for vars in [&defaults.env, &table.env].into_iter().flatten() {
        env.extend(validate::validate_env(vars, &mut problems));
    }
    for names in [&defaults.secret_env, &table.secret_env].into_iter().flatten() {
        env.extend(validate::validate_secret_env(names, &mut problems));
    }
    faults.take(problems);
    let workdir = layer(table.workdir.as_ref(), defaults.workdir.as_ref())
        .and_then(|workdir| faults.check(validate::validate_workdir(workdir)));
    let agent_path = layer(table.agent_path.as_ref(), defaults.agent_path.as_ref())
        .and_then(|path| faults.check(validate::validate_remote_path("agent_path", path)))
        .filter(|_| !local);
    let cache_dir = layer(table.cache_dir.as_ref(), defaults.cache_dir.as_ref())
        .and_then(|path| faults.check(validate::validate_remote_path("cache_dir", path)))
        .filter(|_| !local);
    let install = layer(table.install.as_ref(), defaults.install.as_ref())
        .and_then(|install| faults.check(validate::validate_install(install)));
    let mut spool = Spool::default();
    if let Some(cap) = layer(table.spool_cap.as_ref(), defaults.spool_cap.as_ref())
        .and_then(|cap| faults.check(validate::validate_spool_cap(cap)))
    {
        spool.cap = cap;
    }
    if let Some(least) = layer(table.min_free.as_ref(), defaults.min_free.as_ref())
        .and_then(|least| faults.check(validate::validate_min_free(least)))
    {
        spool.min_free = least;
    }
    let lease_dir = layer(table.lease_dir.as_ref(), defaults.lease_dir.as_ref())
        .and_then(|dir| faults.check(validate::validate_lease_dir(dir)));
    Some(HostConfig {
        id: HostId::from(name?),
        address: address?,
        user,
        port,
        identity,
        fingerprint,
        host_keys,
        jump,
        jump_hosts: Vec::new(),
        transport: transport.unwrap_or_default(),
        interface,
        slots: slots.unwrap_or(SlotCount::Auto),
        labels,
        env,
        workdir,
        spool,
        free_memory: free_memory(table, defaults, faults),
        max_silence_ms: max_silence_ms(table, defaults, faults),
        python_hooks: python_hooks(table, defaults, faults),
        agent_path,
        cache_dir,
        install: install.unwrap_or(true),
        lease_dir,
        container: layer(table.container.as_ref(), defaults.container.as_ref())
            .and_then(|engine| faults.check(validate::validate_container(engine))),
        environment: environment_of(table, defaults, faults),
    })
}

fn max_silence_ms(table: &HostTable, defaults: &HostTable, faults: &mut Faults) -> Option<u64> {
    let written = layer(table.max_silence.as_ref(), defaults.max_silence.as_ref());
    let checked = written.and_then(|silence| faults.check(validate::validate_max_silence(silence)));
    checked.filter(|ms| *ms > 0)
}

fn python_hooks(table: &HostTable, defaults: &HostTable, faults: &mut Faults) -> bool {
    let written = layer(table.python_hooks.as_ref(), defaults.python_hooks.as_ref());
    written.and_then(|hooks| faults.check(validate::validate_python_hooks(hooks))).unwrap_or(true)
}

/// Each key for itself: a host's conda joins the default's modules.
fn environment_of(table: &HostTable, defaults: &HostTable, faults: &mut Faults) -> EnvironmentPlan {
    let mut fault = |problem| faults.add(problem);
    let own = environment::of(&table.into(), &mut fault);
    own.over(&environment::of(&defaults.into(), &mut fault))
}

fn free_memory(table: &HostTable, defaults: &HostTable, faults: &mut Faults) -> FreeMemory {
    let written = layer(table.free_memory.as_ref(), defaults.free_memory.as_ref());
    let checked = written.and_then(|memory| faults.check(validate::validate_free_memory(memory)));
    checked.unwrap_or_default()
}

/// The host's own value before the default.
fn layer<'a, T>(own: Option<&'a T>, default: Option<&'a T>) -> Option<&'a T> {
    own.or(default)
}

fn required<'a>(
    key: &str,
    example: &str,
    value: Option<&'a Text>,
    table: &std::ops::Range<usize>,
    faults: &mut Faults,
) -> Option<&'a Text> {
    if value.is_none() {
        let title = format!("this entry has no `{key}`");
        faults.add(Problem::new(table.clone(), title, format!("add {key} = \"{example}\"")));
    }
    value
}

/// What is about ssh says nothing for this machine, and nothing may be ignored.
fn ssh_keys_of_local(table: &HostTable, faults: &mut Faults) {
    let texts = [
        ("user", table.user.as_ref().map(Spanned::span)),
        ("port", table.port.as_ref().map(Spanned::span)),
        ("identity", table.identity.as_ref().map(Spanned::span)),
        ("fingerprint", table.fingerprint.as_ref().map(Spanned::span)),
        ("host_keys", table.host_keys.as_ref().map(Spanned::span)),
        ("jump", table.jump.as_ref().map(Spanned::span)),
        ("transport", table.transport.as_ref().map(Spanned::span)),
        ("agent_path", table.agent_path.as_ref().map(Spanned::span)),
        ("cache_dir", table.cache_dir.as_ref().map(Spanned::span)),
        ("install", table.install.as_ref().map(Spanned::span)),
    ];
    for (key, span) in texts {
        if let Some(span) = span {
            let title = format!("`{key}` means nothing for address \"local\"");
            let remedy = "remove it, or write the address by which ssh reaches the host";
            faults.add(Problem::new(span, title, remedy));
        }
    }
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a Text>, faults: &mut Faults) {
    let mut seen: Vec<&Text> = Vec::new();
    for name in names {
        match seen.iter().find(|other| other.get_ref() == name.get_ref()) {
            Some(first) => faults.add(
                Problem::new(
                    name.span(),
                    format!("duplicate {what} `{}`", name.get_ref()),
                    format!("give each {what} a name of its own, or remove one of the two"),
                )
                .repeats(first.span()),
            ),
            None => seen.push(name),
        }
    }
}

/// Saved filters, in the order of the file.
fn views(file: &File, faults: &mut Faults) -> Vec<View> {
    let mut written: Vec<(&Text, &Text)> = file.views.iter().collect();
    written.sort_by_key(|(name, _)| name.span().start);
    let view = |(name, filter): (&Text, &Text)| {
        let name = faults.check(validate::validate_view_name(name));
        let filter = Filter::parse(filter.get_ref()).map_err(|error| {
            let title = format!("`{}` is not a filter", filter.get_ref());
            Problem::new(filter.span(), title, &error.reason)
        });
        let filter = faults.check(filter);
        Some(View { name: name?, filter: filter? })
    };
    written.into_iter().filter_map(view).collect()
}

fn recipes(file: &File, faults: &mut Faults) -> Vec<Recipe> {
    unique("recipe", file.recipe.iter().filter_map(|recipe| recipe.get_ref().name.as_ref()), faults);
    let hosts: Vec<&str> = file
        .host
        .iter()
        .filter_map(|host| host.get_ref().name.as_ref())
        .map(|name| name.get_ref().as_str())
        .collect();
    file.recipe.iter().filter_map(|table| recipe(table, &hosts, faults)).collect()
}

fn recipe(table: &Spanned<RecipeTable>, hosts: &[&str], faults: &mut Faults) -> Option<Recipe> {
    let (span, table) = (table.span(), table.get_ref());
    let sync = table.sync.as_ref().and_then(|sync| faults.check(validate::validate_sync(sync)));
    let name = required("name", "digits", table.name.as_ref(), &span, faults)
        .and_then(|name| faults.check(validate::validate_name("recipe", name)));
    let kind = table.kind.as_ref().and_then(|kind| faults.check(validate::validate_kind(kind)));
    if table.command.is_none() {
        let remedy = "add command = \"hvtui train digits\"";
        faults.add(Problem::new(span, "this recipe has no `command`", remedy));
    }
    let command =
        table.command.as_ref().and_then(|command| faults.check(validate::validate_command(command)));
    let place = match (&table.np, &table.picks) {
        (Some(np), Some(_)) => {
            let title = "a recipe has `np` or `picks`, not both";
            faults.add(Problem::new(np.span(), title, "remove one: every pick is a rank"));
            None
        }
        (Some(np), None) => faults.check(validate::validate_np(np)).map(|np| RecipeWhere::Count(Some(np))),
        (None, Some(picks)) => Some(RecipeWhere::Picks(
            picks.iter().filter_map(|pick| faults.check(validate::validate_pick(pick, hosts))).collect(),
        )),
        (None, None) => Some(RecipeWhere::Count(None)),
    };
    let mut problems = Vec::new();
    let env = table.env.as_ref().map(|env| validate::validate_env(env, &mut problems)).unwrap_or_default();
    faults.take(problems);
    let container = recipe_container(table, faults);
    let environment = environment::of(&table.into(), &mut |problem| faults.add(problem));
    let workdir = table.workdir.as_ref().and_then(|dir| faults.check(validate::validate_workdir(dir)));
    let (name, command, place) = (name?, command?, place?);
    Some(Recipe { name, kind, command, place, env, container, environment, sync, workdir })
}

fn recipe_container(table: &RecipeTable, faults: &mut Faults) -> Option<ContainerOptions> {
    let Some(image) = &table.image else {
        if let Some(volume) = table.volumes.iter().flatten().next() {
            let title = "`volumes` is for containers";
            faults.add(Problem::new(volume.span(), title, "add image = \"…\", or remove `volumes`"));
        }
        return None;
    };
    let image = faults.check(validate::validate_image(image))?;
    let volumes = table.volumes.iter().flatten();
    let volumes = volumes.filter_map(|volume| faults.check(validate::validate_volume(volume))).collect();
    Some(ContainerOptions { volumes, ..ContainerOptions::of(image) })
}

/// The key and the value of the line at `at` where the value is a text that lacks its quotes.
fn bare_text(text: &str, at: usize) -> Option<(&str, &str)> {
    let begin = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(begin..)?.lines().next()?;
    let (key, value) = line.split_once('=')?;
    let value = value.split('#').next().unwrap_or_default().trim();
    let is_text = value.starts_with(|c: char| c.is_alphabetic() || matches!(c, '/' | '~'))
        && !value.contains(['"', '\'', '[', '{', '\\'])
        && !["true", "false", "inf", "nan"].contains(&value);
    is_text.then_some((key.trim(), value))
}

/// The table of which there may be several and that is written as the only one: its name and its place.
fn single_table<'a>(text: &'a str, message: &str) -> Option<(&'a str, std::ops::Range<usize>)> {
    if !message.contains("expected a sequence") {
        return None;
    }
    let mut at = 0;
    text.split_inclusive('\n').find_map(|line| {
        let begin = at;
        at += line.len();
        let head = line.split('#').next().unwrap_or_default().trim();
        let name = head.strip_prefix('[')?.strip_suffix(']')?.trim();
        ["host", "recipe"].contains(&name).then(|| (name, begin..begin + head.len()))
    })
}

/// The key that means what other programs and hvtui's own options call so.
fn other_word(field: &str) -> Option<&'static str> {
    Some(match field {
        "ranks" | "n" | "nprocs" | "num_proc" | "ntasks" | "nproc" => "np",
        "cmd" | "run" | "script" => "command",
        "gpus" | "slots" | "places" => "picks",
        "cwd" | "dir" | "directory" | "chdir" | "folder" => "workdir",
        "volume" => "volumes",
        "module" => "modules",
        "environment" => "env",
        "hostname" | "host" | "ip" => "address",
        "key" | "identity_file" => "identity",
        "proxy_jump" => "jump",
        _ => return None,
    })
}

/// The parser's own words, with the key that was likely meant where it met an unknown one.
fn from_toml(error: &toml::de::Error, text: &str) -> Problem {
    let span = error.span().unwrap_or(0..0);
    if let Some((key, value)) = bare_text(text, span.start) {
        let title = format!("`{value}` is a text without quotes");
        return Problem::new(span, title, format!("write {key} = \"{value}\""));
    }
    let message = error.message();
    if let Some((name, place)) = single_table(text, message) {
        let title = format!("there may be several {name}s, and `[{name}]` is a single table");
        return Problem::new(place, title, format!("write [[{name}]]"));
    }
    // serde's wording: unknown field `prot`, expected one of `name`, `address`
    if let Some((field, rest)) = message.strip_prefix("unknown field `").and_then(|m| m.split_once('`')) {
        let keys = rest.split('`').skip(1).step_by(2);
        let keys: Vec<&str> = keys.collect();
        let meant = other_word(field).filter(|key| keys.contains(key)).unwrap_or(field);
        return Problem::new(span, format!("unknown key `{field}`"), validate::known("keys", meant, &keys));
    }
    let title = message.lines().collect::<Vec<_>>().join(": ");
    Problem::new(span, title, "correct the line; `hvtui config template` prints a file that works")
}
