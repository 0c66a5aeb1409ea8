//! `docker run IMG …` and `podman run`: the container, and the line that is started inside.

use crate::domain::environment::EnvironmentPlan;
use crate::launch::words::{Caret, Line};

use super::common;
use super::draft::Draft;
use super::options::Does::{Mark, Try};
use super::options::{Allows, Given, Row, Style, read as read_options, row};
use super::pasted::{Container, KnownTo, Launcher};
use super::prefix;

/// As whom the ranks of a container run.
const IN_IMAGE: &str =
    "in the image ranks run as the user of `--user`, else as the one as whom hvtui logs in to their host";

const STYLE: Style = Style { program: "docker run", allows: &[Allows::Glued, Allows::FlagValues] };

static OPTIONS: &[Row] = &[
    row("--help", 0, Mark(common::ask)),
    row("-v --volume", 1, Try(volume)),
    row("--gpus", 1, Mark(|draft, given| here(draft).gpus = Some(given.text().to_owned()))),
    row("-e --env", 1, Try(env)),
    row("-w --workdir", 1, Mark(|draft, given| here(draft).workdir = Some(given.text().to_owned()))),
    row("--network --net", 1, Mark(|draft, given| here(draft).network = Some(given.text().to_owned()))),
    row("-u --user", 1, Mark(|draft, given| here(draft).user = Some(given.text().to_owned()))),
    row("--name", 1, Mark(|draft, given| here(draft).name = Some(given.text().to_owned()))),
    row("-d --detach -i --interactive -t --tty --rm --privileged --init -P --publish-all", 0, Mark(other)),
    row(
        "--read-only --no-healthcheck --oom-kill-disable --sig-proxy --disable-content-trust -q --quiet",
        0,
        Mark(other),
    ),
    row(
        "--mount --tmpfs --volumes-from --volume-driver --device --device-cgroup-rule --runtime --shm-size",
        1,
        Mark(other),
    ),
    row(
        "--ipc --pid --uts --userns --cgroupns --cgroup-parent --ulimit --cap-add --cap-drop --security-opt",
        1,
        Mark(other),
    ),
    row(
        "-h --hostname --domainname -p --publish --expose --add-host --dns --dns-search --dns-option --link",
        1,
        Mark(other),
    ),
    row(
        "--ip --ip6 --mac-address --network-alias --net-alias --entrypoint --env-file -l --label --label-file",
        1,
        Mark(other),
    ),
    row(
        "--log-driver --log-opt -m --memory --memory-swap --memory-reservation --kernel-memory --cpus -c",
        1,
        Mark(other),
    ),
    row(
        "--cpu-shares --cpu-period --cpu-quota --cpuset-cpus --cpuset-mems --blkio-weight --pids-limit",
        1,
        Mark(other),
    ),
    row(
        "--restart --pull --platform --isolation --group-add --stop-signal --stop-timeout --sysctl --cidfile",
        1,
        Mark(other),
    ),
    row(
        "--pod --pod-id-file --cgroups --pidfile --conmon-pidfile --uidmap --gidmap --umask --secret --systemd --arch --tz",
        1,
        Mark(other),
    ),
    row(
        "-a --attach --detach-keys --annotation --storage-opt --oom-score-adj --health-cmd --health-interval",
        1,
        Mark(other),
    ),
];

/// Reads the line whose engine is the word `engine` and whose first option is the word `at`.
pub(super) fn read(draft: &mut Draft<'_>, engine: usize, at: usize) -> Result<(), Caret> {
    let line = draft.line;
    here(draft).engine.clone_from(&line.words[engine].text);
    let image = read_options(draft, OPTIONS, STYLE, at)?;
    if draft.query {
        draft.pasted.launcher = Launcher::Query;
        draft.pasted.command = draft.pasted.argv.clone();
        draft.pasted.container = None;
        return Ok(());
    }
    let words = &line.words;
    let Some(named) = words.get(image) else {
        let end = draft.line.text.len();
        return Err(draft.line.caret(end..end, "no image: the line ends where the image's name belongs"));
    };
    here(draft).image.clone_from(&named.text);
    let command = draft.texts(image + 1);
    if command.is_empty() {
        let end = line.text.len();
        let text = "no command behind the image: its own is mostly a shell, for which ranks have no terminal; write what is \
                    typed there, such as `python train.py`";
        return Err(line.caret(end..end, text));
    }
    second_line(line, image)?;
    here(draft).command.clone_from(&command);
    // The rest is a line of its own, with its words at the places where they stand.
    let inner = line.part(image + 1..words.len());
    let read = super::read(&inner)?;
    if draft.pasted.workdir.is_some() || draft.pasted.environment.activates() {
        draft.remark("What stands before the engine's `run` is left out: the container does not see it.");
    }
    let container = draft.pasted.container.take();
    let misspelt = draft.pasted.misspelt.take();
    let argv = std::mem::take(&mut draft.pasted.argv);
    let (options, remarks) =
        (std::mem::take(&mut draft.pasted.not_understood), std::mem::take(&mut draft.pasted.remarks));
    let warnings = std::mem::take(&mut draft.pasted.warnings);
    let (env, mask) = (std::mem::take(&mut draft.pasted.env), draft.pasted.gpu_mask.take());
    if let Some(mut inner) = read {
        for warning in &mut inner.warnings {
            *warning = warning.replace(super::AS_LOGIN, IN_IMAGE).replace(super::NAMES_ANOTHER, "");
        }
        draft.pasted = inner;
    } else {
        draft.pasted.command = command;
        (draft.pasted.workdir, draft.pasted.environment) = (None, EnvironmentPlan::default());
    }
    draft.pasted.argv = argv;
    draft.pasted.container = container;
    draft.pasted.misspelt = misspelt.or(draft.pasted.misspelt.take());
    // a folder of the line inside is the container's
    if let Some(folder) = draft.pasted.workdir.take() {
        here(draft).workdir = Some(folder);
    }
    if std::mem::take(&mut draft.pasted.environment).activates() {
        draft.pasted.not_understood.push("what is activated in the container".to_owned());
        draft.pasted.remarks.retain(|remark| !remark.ends_with(prefix::ACTIVATED));
    }
    for (key, value) in env {
        let own = draft.pasted.get_env(&key).map(str::to_owned);
        draft.pasted.set_env(&key, own.unwrap_or(value));
    }
    draft.pasted.gpu_mask = draft.pasted.gpu_mask.take().or(mask);
    draft.pasted.not_understood.splice(0..0, options);
    if draft.pasted.is_delegated() {
        // Its launcher is inside, where hvtui is not.
        draft.pasted.known_to = KnownTo::Launcher;
        draft.pasted.not_understood.push("docker run (started by docker itself)".to_owned());
        draft.warn("A container outlives the `docker run` that is killed, and keeps its GPU memory.");
    }
    for remark in remarks {
        draft.remark(remark);
    }
    for warning in warnings {
        draft.warn(warning);
    }
    Ok(())
}

/// `-v PATH:INSIDE`; a path that counts from the current folder is none of the hosts.
fn volume(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    let (source, inside) = given.text().split_once(':').unwrap_or((given.text(), ""));
    let first = source.split('/').next().unwrap_or_default();
    if matches!(first, "." | "..") {
        let text = format!(
            "`{source}` counts from the folder that you are in: write the whole path on the hosts, such as \
             {} ~/x:{inside}; --sync {source}:~/x copies the folder there first",
            given.typed
        );
        return Err(draft.line.caret(given.place(), text));
    }
    here(draft).volumes.push(given.text().to_owned());
    Ok(())
}

/// A second line is what is typed in the container's shell: it may begin right behind the image, and nowhere else.
fn second_line(line: &Line, image: usize) -> Result<(), Caret> {
    for (at, pair) in line.words.windows(2).enumerate().filter(|(at, _)| *at != image) {
        let [before, next] = pair else { continue };
        let between = line.text.get(before.span.end..next.span.start).unwrap_or_default();
        // blanks may stand behind a backslash
        let joined = ["\\\r\n", "\\\n", "\\\r"]
            .iter()
            .fold(between.replace([' ', '\t'], ""), |text, end| text.replace(end, ""));
        if joined.contains(['\n', '\r']) {
            let text = if at < image {
                "a second line begins here, before the image's name: end the line before with a backslash"
            } else {
                "a second command begins here: give one command behind the image"
            };
            return Err(line.caret(next.span.start..line.text.len(), text));
        }
    }
    Ok(())
}

fn here<'d>(draft: &'d mut Draft<'_>) -> &'d mut Container {
    draft.pasted.container.get_or_insert_default()
}

fn other(draft: &mut Draft<'_>, given: &Given<'_>) {
    here(draft).others.push(given.words());
}

fn env(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    match given.text().split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            here(draft).env.push((key.to_owned(), value.to_owned()));
        }
        None if !given.text().is_empty() => here(draft).env_from_here.push(given.text().to_owned()),
        _ => {
            let text = format!("`{}` takes a variable's name, or NAME=VALUE", given.typed);
            return Err(draft.line.caret(given.place(), text));
        }
    }
    Ok(())
}
