//! `mpirun`, `mpiexec`, `orterun`, `prterun`: the options of Open MPI 4 and 5, Intel MPI and MPICH.

use crate::domain::run::JobKind;
use crate::launch::words::Caret;

use super::common;
use super::draft::{Draft, add};
use super::options::Does::{Delegate, Mark, NoEffect, Pass, Try};
use super::options::{Allows, Given, Row, Style, read as read_options, row};
use super::pasted::{Launcher, PerNode};
use super::{programs, rsh_args};

const STYLE: Style = Style { program: "mpirun", allows: &[Allows::AnyDashes] };

const TAGS: &str = "hvtui keeps the output of each rank apart and says whose it is and when it came";
const HERE: &str = "hvtui starts as the user that it runs as";
const SSH: &str = "hvtui reaches hosts by ssh";

static OPTIONS: &[Row] = &[
    row("-h --help -V --version -info", 0, Mark(common::ask)),
    row("-np -n -c", 1, Try(common::np)),
    row("-H -host -hosts", 1, Try(hosts)),
    row("-hostfile -machinefile -f -default-hostfile", 1, Try(common::hostfile)),
    row("-x", 1, Try(export)),
    row("-mca -gmca", 2, Try(mca)),
    row("-prtemca -gprtemca -pmixmca -gpmixmca -omca -gomca", 2, Mark(part)),
    row("-allow-run-as-root", 0, NoEffect(HERE)),
    row("-oversubscribe", 0, Mark(|draft, _| draft.pasted.oversubscribe = true)),
    row("-nooversubscribe", 0, NoEffect("hvtui starts no more ranks than slots unless told to")),
    row("-bind-to", 1, Try(common::bind_to)),
    row("-bind-to-none", 0, Mark(|draft, _| draft.pasted.bind_to = Some("none".to_owned()))),
    row("-bind-to-core", 0, Mark(|draft, _| draft.pasted.bind_to = Some("core".to_owned()))),
    row("-bind-to-socket", 0, Mark(|draft, _| draft.pasted.bind_to = Some("socket".to_owned()))),
    row("-map-by", 1, Try(map_by)),
    row("-byslot", 0, Mark(|draft, _| draft.pasted.map_by = Some("slot".to_owned()))),
    row("-pernode", 0, Mark(|draft, _| draft.pasted.per_node = Some(PerNode::Ranks(1)))),
    row("-bynode -nolocal -bycore -do-not-launch -dvm -xml -novm", 0, Delegate),
    row("-rank-by -rankfile -rf -npersocket -app -configfile -xterm -xml-file -stdin -path", 1, Delegate),
    row("-pset -personality", 1, Delegate),
    row("-s", 0, Delegate),
    row("-cpu-set -cpu-list -cpus-per-proc -cpus-per-rank -timeout -tune -am -preload-files", 1, Pass),
    row("-preload-binary -get-stack-traces -report-state-on-timeout", 0, Pass),
    row("-debug-daemons -leave-session-attached", 0, Pass),
    row("-N -npernode -ppn -perhost -grr", 1, Try(common::per_node)),
    row("-report-bindings -display-map -display-devel-map -display-allocation -display-topo", 0, Pass),
    row("-print-rank-map -d -debug -noprefix", 0, Pass),
    row("-display", 1, Pass),
    row(
        "-tag-output -timestamp-output -merge-stderr-to-stdout -l -prepend-rank -q -quiet",
        0,
        NoEffect(TAGS),
    ),
    row("-output-filename -outfile-pattern", 1, Try(common::output_filename)),
    row("-errfile-pattern", 1, Delegate),
    row("-output", 1, Mark(output)),
    row("-wdir -wd -chdir", 1, Try(common::workdir)),
    row("-prefix", 1, Try(common::prefix)),
    row("-genv -env", 2, Try(variable)),
    row("-genvlist -envlist", 1, Mark(export_list)),
    row("-genvnone -envnone", 0, NoEffect("hvtui gives ranks only the variables of the request")),
    row("-genvall -envall", 0, Delegate),
    row("-iface", 1, Try(common::interfaces)),
    row("-bootstrap -launcher -rmk", 1, Mark(bootstrap)),
    row("-bootstrap-exec-args -launcher-exec", 1, Delegate),
    row("-v -verbose", 0, Mark(common::verbose)),
];

/// Reads options from the word `at` on; returns where the command begins.
pub(super) fn options(draft: &mut Draft<'_>, at: usize) -> Result<usize, Caret> {
    let command = read_options(draft, OPTIONS, STYLE, at)?;
    both_ways(draft)?;
    Ok(command)
}

/// Reads the line whose first option is the word `at`.
pub(super) fn read(draft: &mut Draft<'_>, at: usize) -> Result<(), Caret> {
    leading(draft);
    let command = options(draft, at)?;
    draft.pasted.launcher = Launcher::Mpirun;
    draft.pasted.kind = JobKind::Mpi;
    implied_prefix(draft);
    if draft.query {
        draft.pasted.launcher = Launcher::Query;
        draft.pasted.kind = JobKind::Plain;
        draft.pasted.command = draft.pasted.argv.clone();
        return Ok(());
    }
    draft.check_hosts(command)?;
    draft.take_command(command)?;
    programs::read(draft, command)?;
    remarks(draft);
    Ok(())
}

/// `OMPI_MCA_btl=… mpirun` is `mpirun -mca btl …`; other variables before mpirun stay on its host.
fn leading(draft: &mut Draft<'_>) {
    let env = std::mem::take(&mut draft.pasted.env);
    for (key, value) in env {
        match key.strip_prefix("OMPI_MCA_") {
            Some(name) => draft.pasted.mca.push((name.to_owned(), value)),
            None => draft.pasted.env.push((key, value)),
        }
    }
}

/// `/usr/local/bin/mpirun` means `--prefix /usr/local`.
fn implied_prefix(draft: &mut Draft<'_>) {
    let program = draft.pasted.argv.first().map_or("", String::as_str);
    let implied = program.rsplit_once('/').and_then(|(folder, _)| folder.strip_suffix("/bin"));
    if let (None, Some(prefix)) = (&draft.pasted.prefix, implied.filter(|prefix| prefix.starts_with('/'))) {
        draft.pasted.prefix = Some(prefix.to_owned());
    }
}

/// `-H` may come several times: Open MPI joins the lists.
fn hosts(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    let (had_at, mut had) = (draft.hosts_at.take(), std::mem::take(&mut draft.pasted.hosts));
    common::hosts(draft, given)?;
    if had_at.is_some() {
        for host in std::mem::take(&mut draft.pasted.hosts) {
            match had.iter_mut().find(|h| h.host == host.host && h.user == host.user) {
                Some(h) => h.slots = Some(h.slots.unwrap_or(1).saturating_add(host.slots.unwrap_or(1))),
                None => had.push(host),
            }
        }
        draft.pasted.hosts = had;
    }
    Ok(())
}

/// `-x K`, `-x K=V`, and Open MPI 4's `-x A -x B`.
fn export(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    let (key, value) = match given.text().split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (given.text(), None),
    };
    if key.is_empty() || key.contains(char::is_whitespace) {
        let text = format!("`{}` takes a variable's name, or NAME=VALUE", given.typed);
        return Err(draft.line.caret(given.place(), text));
    }
    if key == "NCCL_SOCKET_IFNAME"
        && let Some(list) = value.and_then(|value| value.strip_prefix('^'))
    {
        list.split(',').for_each(|name| add(&mut draft.pasted.exclude_interfaces, name));
    }
    match value {
        Some(value) => draft.pasted.set_env(key, value),
        // A variable before mpirun has its value already.
        None if draft.leading.iter().any(|name| name == key) => {}
        None => add(&mut draft.pasted.env_from_here, key),
    }
    Ok(())
}

fn export_list(draft: &mut Draft<'_>, given: &Given<'_>) {
    given.text().split(',').for_each(|key| add(&mut draft.pasted.env_from_here, key));
}

/// Hydra's `-genv K V`.
fn variable(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    let [key, value] = &given.values[..] else { return Ok(()) };
    if key.text().is_empty() || key.text().contains('=') {
        let text = format!("`{}` takes a name and a value: two words", given.typed);
        return Err(draft.line.caret(key.span(), text));
    }
    draft.pasted.set_env(key.text(), value.text());
    Ok(())
}

/// A parameter of one of Open MPI's parts. Those that say how hosts are reached, or which, are hvtui's.
fn part(draft: &mut Draft<'_>, given: &Given<'_>) {
    let ours = ["plm_", "ras_", "rmaps_"].iter().any(|start| given.text().starts_with(start));
    if ours {
        draft.delegate(given);
    } else {
        draft.pasted.pass.extend(given.words());
    }
}

fn mca(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    let [key, value] = &given.values[..] else { return Ok(()) };
    let (key, text) = (key.text(), value.text());
    if key.ends_with("_tcp_if_include") || key.ends_with("_tcp_if_exclude") {
        draft.interfaces_at.push((key.to_owned(), given.span.clone()));
        let included = key.ends_with("include");
        let lists = &mut draft.pasted;
        let list = if included { &mut lists.interfaces } else { &mut lists.exclude_interfaces };
        text.split(',').for_each(|name| add(list, name.trim()));
    }
    if matches!(key, "plm_rsh_args" | "plm_ssh_args") {
        rsh_args::read(draft, given, value)?;
    } else if matches!(key, "plm_rsh_agent" | "plm_ssh_agent") && !text.starts_with("ssh") {
        draft.delegate(given);
    } else if !draft.pasted.mca.iter().any(|(k, v)| k == key && v == text) {
        draft.pasted.mca.push((key.to_owned(), text.to_owned()));
    }
    Ok(())
}

/// `btl_tcp_if_include` and `btl_tcp_if_exclude` exclude each other, wherever they come from.
fn both_ways(draft: &Draft<'_>) -> Result<(), Caret> {
    for (key, _) in &draft.pasted.mca {
        let Some(layer) = key.strip_suffix("_tcp_if_include") else { continue };
        let other = format!("{layer}_tcp_if_exclude");
        if draft.pasted.mca.iter().any(|(name, _)| *name == other) {
            let at = draft.interfaces_at.iter().rev().find(|(name, _)| *name == *key || *name == other);
            let span = at.map_or(0..0, |(_, span)| span.clone());
            let text = format!("`{key}` and `{other}` together: Open MPI takes one of them");
            return Err(draft.line.caret(span, text));
        }
    }
    Ok(())
}

/// Ranks fill the slots of host after host, as `slot` says; any other order is Open MPI's own.
fn map_by(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    let text = given.text().to_ascii_lowercase();
    match text.strip_suffix(":oversubscribe").unwrap_or(&text) {
        "slot" | "" => {
            draft.pasted.oversubscribe |= text.ends_with(":oversubscribe");
            draft.pasted.map_by = Some("slot".to_owned());
        }
        _ => {
            common::map_by(draft, given)?;
            draft.delegate(given);
        }
    }
    Ok(())
}

/// Open MPI 5's `--output tag,dir=D`.
fn output(draft: &mut Draft<'_>, given: &Given<'_>) {
    for item in given.text().split(',') {
        match item.split_once('=') {
            Some(("dir" | "file", path))
                if !path.contains(['%', ':']) && draft.pasted.output_filename.is_none() =>
            {
                draft.pasted.output_filename = Some(path.to_owned());
            }
            None if item.starts_with("tag") || item.starts_with("timestamp") || item.starts_with("merge") => {
                draft.remark(format!("`{} {item}` has no effect: {TAGS}.", given.typed));
            }
            _ => draft.pasted.not_understood.push(format!("{} {item}", given.typed)),
        }
    }
}

fn bootstrap(draft: &mut Draft<'_>, given: &Given<'_>) {
    match given.text() {
        "ssh" | "rsh" => draft.no_effect(given, SSH),
        _ => draft.delegate(given),
    }
}

/// Whether the line is for the launcher of MPICH and Intel MPI, as far as it says so.
fn is_hydra(draft: &Draft<'_>) -> bool {
    let program = draft.pasted.argv.first().map_or("", |program| super::base(program));
    let names_hosts = |given: &str| given.trim_start_matches('-').split('=').next() == Some("hosts");
    let mut options =
        draft.line.words.iter().map(|word| word.text.as_str()).filter(|text| text.starts_with('-'));
    ["mpich", "hydra", "impi"].iter().any(|name| program.contains(name)) || options.any(names_hosts)
}

fn remarks(draft: &mut Draft<'_>) {
    let pasted = &draft.pasted;
    let mut said = Vec::new();
    if pasted.bind_to.as_deref() == Some("none") && pasted.map_by.as_deref() == Some("slot") {
        said.push(
            "`-bind-to none -map-by slot` is what hvtui does: ranks fill the hosts in order, unbound."
                .to_owned(),
        );
    }
    let local: Vec<&str> = pasted
        .env
        .iter()
        .map(|(key, _)| key.as_str())
        .chain(pasted.gpu_mask.as_ref().map(|_| "CUDA_VISIBLE_DEVICES"))
        .filter(|key| draft.leading.iter().any(|name| name == key))
        .collect();
    if !local.is_empty() && (pasted.has_remote_hosts() || pasted.hostfile.is_some()) {
        said.push(format!(
            "mpirun keeps {} on its own host, for want of `-x`; hvtui gives it to each rank.",
            local.join(", ")
        ));
    }
    let bare: Vec<&str> =
        pasted.hosts.iter().filter(|host| host.slots.is_none()).map(|host| host.host.as_str()).collect();
    let whole = pasted.per_node.is_none() && !pasted.oversubscribe;
    let counted = pasted.hosts.iter().map(|host| host.slots.unwrap_or(1)).fold(0, u32::saturating_add);
    let is_open_mpi = !is_hydra(draft);
    if let Some(np) = pasted.np.filter(|np| is_open_mpi && whole && *np > counted && !bare.is_empty()) {
        said.push(format!(
            "Open MPI counts one slot for a host without a number ({}), which is too few for {np} ranks; hvtui takes the slots that the host has.",
            bare.join(", ")
        ));
    }
    if let (Some(np), Some(PerNode::Ranks(each))) = (pasted.np, pasted.per_node)
        && !pasted.hosts.is_empty()
        && u64::from(each) * (pasted.hosts.len() as u64) < u64::from(np)
    {
        said.push(format!("{np} ranks do not fit {} hosts with {each} each.", pasted.hosts.len()));
    }
    for text in said {
        draft.remark(text);
    }
}
