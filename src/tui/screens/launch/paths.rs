//! Files and folders of this machine that may follow what is typed: the folder to copy, and where ranks run on this machine
//! alone, or in a copy of a folder of it, the working directory and the files of the command. Paths of other hosts are not
//! completed. Pure; folders are read outside.

use super::Field;
use crate::domain::ids::HostId;
use crate::launch::folder;
use crate::tui::core::Effect;
use crate::tui::screens::Model;

/// A folder whose names were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// The folder, an absolute path.
    pub path: String,
    /// What is in it, sorted; folders end with `/`. `None` before the answer has come.
    pub names: Option<Vec<String>>,
}

/// A path that is being written.
struct Path<'a> {
    /// The folder that has it.
    folder: String,
    /// What is written of its name.
    start: &'a str,
    /// Whether only folders are meant.
    folders: bool,
    /// Whether it is a word of a command.
    in_command: bool,
}

/// The rest of the first name in the folder that begins as the text does.
pub(super) fn suggestion(model: &Model) -> Option<String> {
    let path = written(model)?;
    let folder = model.ui.launch.folder.as_ref().filter(|folder| folder.path == path.folder)?;
    let fits = |name: &&String| {
        let whole = name.strip_suffix('/').unwrap_or(name);
        name.starts_with(path.start)
            && whole != path.start
            && (path.start.starts_with('.') || !name.starts_with('.'))
            && (!path.folders || name.ends_with('/'))
            && (!path.in_command || name.chars().all(is_plain))
            && !name.contains(':')
    };
    folder.names.iter().flatten().find(fits).map(|name| name[path.start.len()..].to_owned())
}

/// Asks for the names of the folder in which the text goes on, where they are not known.
pub(super) fn ask(model: &mut Model) -> Option<Effect> {
    let path = written(model)?.folder;
    let folder = &mut model.ui.launch.folder;
    if folder.as_ref().is_some_and(|known| known.path == path) {
        return None;
    }
    *folder = Some(Folder { path: path.clone(), names: None });
    Some(Effect::ListFolder(path))
}

/// Takes the names of a folder; those of one that is not asked for any more are dropped.
pub(in crate::tui::screens) fn listed(model: &mut Model, path: &str, names: Vec<String>) {
    if let Some(folder) = model.ui.launch.folder.as_mut().filter(|folder| folder.path == path) {
        folder.names = Some(names);
    }
}

/// The path at the end of the focused field.
fn written(model: &Model) -> Option<Path<'_>> {
    let form = &model.ui.launch;
    let field = form.focus;
    let input = form.inputs.get(field as usize)?;
    let typed = input.value();
    if input.cursor() < typed.chars().count() || (field == Field::Command && form.untouched) {
        return None;
    }
    let here = &model.here;
    let (word, base) = match field {
        Field::Sync if !typed.contains(':') => (typed, here.cwd.clone()),
        Field::Workdir if typed.starts_with('/') && runs_here(model) => (typed, String::new()),
        Field::Command => {
            let word = last_argument(typed)?;
            (word, base_of_command(model, word)?)
        }
        _ => return None,
    };
    let (before, start) = word.split_at(word.rfind('/').map_or(0, |slash| slash + 1));
    if before.is_empty() && start.is_empty() {
        return None;
    }
    let folder = match before.strip_prefix("~/") {
        Some(below) if field == Field::Sync => format!("{}/{below}", here.home),
        _ if before.starts_with('/') => before.to_owned(),
        _ => format!("{base}/{before}"),
    };
    let in_command = field == Field::Command;
    Some(Path { folder, start, folders: !in_command, in_command })
}

/// The folder from which the files of the command count on this machine: the one that is copied, else where ranks start.
/// `None` where that is on another host.
fn base_of_command(model: &Model, word: &str) -> Option<String> {
    let form = &model.ui.launch;
    let (sync, workdir) = (form.text(Field::Sync).trim(), form.text(Field::Workdir).trim());
    if !sync.is_empty() && !word.starts_with('/') {
        let plan = folder::folder(sync, false, &model.here.cwd, &model.here.home).ok()?;
        return (workdir.is_empty() || workdir == plan.remote).then_some(plan.dir);
    }
    if !runs_here(model) {
        return None;
    }
    Some(if workdir.starts_with('/') { workdir.to_owned() } else { model.here.cwd.clone() })
}

/// Whether every host that the launch may take is this machine.
fn runs_here(model: &Model) -> bool {
    let is_here = |host: &HostId| model.hosts.of(host).is_some_and(|host| host.is_local);
    let words = model.ui.launch.text(Field::On).split([' ', ',', ';']);
    let hosts = words.map(|word| HostId::from(word.split(':').next().unwrap_or(word)));
    let named: Vec<HostId> = hosts.filter(|host| model.hosts.of(host).is_some()).collect();
    if named.is_empty() {
        return !model.hosts.is_empty() && model.hosts.iter().all(|host| host.is_local);
    }
    named.iter().all(is_here)
}

/// What may be a path at the end of a command: its last word, behind `--option=` or `NAME=`. Not the program itself unless it
/// is a path, and no word in quotes.
fn last_argument(command: &str) -> Option<&str> {
    if command.contains(['"', '\'', '\\', '$', '`']) {
        return None;
    }
    let begins = command.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let word = command.get(begins..)?;
    let is_program = command[..begins].trim().is_empty();
    let value = word.split_once('=').map(|(_, value)| value);
    match value {
        Some(value) => Some(value),
        None if word.starts_with('-') || (is_program && !word.contains('/')) => None,
        None => Some(word),
    }
}

/// Whether a character stands for itself in a command.
fn is_plain(letter: char) -> bool {
    letter.is_alphanumeric() || "._-+@%,/".contains(letter)
}
