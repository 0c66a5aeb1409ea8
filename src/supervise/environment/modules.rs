//! Environment modules (Tcl or Lmod): loads them in a shell, for their `module` is a shell function.

use std::ffi::OsString;
use std::path::Path;

use super::error::EnvironmentError;
use super::shell::{Question, ShellFault, error_line, last_line, tell_environment};
use super::{Site, Variables, login, on_path};

/// Where the shell's `module` comes from, unless the environment says.
const LOOKED: &str =
    "no `module` by /etc/profile.d/{modules,lmod,z00_lmod}.sh, by MODULESHOME, LMOD_PKG or in a login shell";

/// How the script ends where there is no module system, and where the first of the modules can't be loaded; one more
/// for each that follows.
const NO_SYSTEM: i32 = 90;
const FIRST: i32 = 101;

/// `$1`: the shell's name, as init files are called; then the modules.
const SCRIPT: &str = concat!(
    r#"
has() { command -v module >/dev/null 2>&1; }
hvtui_shell=$1
shift
for hvtui_init in "${MODULESHOME:-/usr/share/modules}/init/$hvtui_shell" "${LMOD_PKG:-/usr/share/lmod/lmod}/init/$hvtui_shell" \
    /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh; do
    has && break
    if [ -r "$hvtui_init" ]; then . "$hvtui_init" >/dev/null; fi
done
has || exit 90
hvtui_code=100
for hvtui_module in "$@"; do
    hvtui_code=$((hvtui_code + 1))
    hvtui_before=$LOADEDMODULES
    module load "$hvtui_module" </dev/null >/dev/null || exit "$hvtui_code"
    # old ones say nothing by their status
    case ":$LOADEDMODULES:" in
    *":$hvtui_module:"* | *":$hvtui_module/"*) ;;
    ":$hvtui_before:") exit "$hvtui_code" ;;
    esac
done
"#,
    tell_environment!()
);

/// The environment with these modules loaded over `now`.
pub(super) fn load(
    names: &[String],
    now: &Variables,
    site: &Site<'_>,
) -> Result<Variables, EnvironmentError> {
    let mut start = now.clone();
    if let Some(path) = site.given.get("MODULEPATH") {
        start.insert("MODULEPATH".to_owned(), path.clone());
    }
    let first = try_load(names, &start, site);
    if first.is_ok() {
        return first;
    }
    // Where the module system and its files are may be known to a login shell alone.
    let Ok(login) = login::environment(now, false, site.deadline) else { return first };
    let of_modules = login.into_iter().filter(|(name, _)| tells_where(name));
    let mut more = start.clone();
    for (name, value) in of_modules {
        more.entry(name).or_insert(value);
    }
    if more == start { first } else { try_load(names, &more, site) }
}

/// Whether a variable tells where modules are. Not which are loaded: those of the login shell are not.
fn tells_where(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "MODULEPATH",
        "MODULESHOME",
        "MODULES_CMD",
        "MODULERCFILE",
        "LMOD_CMD",
        "LMOD_DIR",
        "LMOD_PKG",
        "LMOD_ROOT",
    ];
    NAMES.contains(&name)
}

fn try_load(names: &[String], now: &Variables, site: &Site<'_>) -> Result<Variables, EnvironmentError> {
    let (shell, called) = match on_path(now, "bash") {
        Some(bash) => (bash, "bash"),
        None => (Path::new("/bin/sh").to_owned(), "sh"),
    };
    let words = ["-c", SCRIPT, "hvtui", called].into_iter().chain(names.iter().map(String::as_str));
    let arguments = words.map(OsString::from).collect();
    let question =
        Question { program: &shell, arg0: None, arguments, environment: now, deadline: site.deadline };
    question.ask().map_err(|fault| match fault {
        ShellFault::Silent { code: Some(NO_SYSTEM), .. } => {
            EnvironmentError::NoModules { names: names.join(","), looked: LOOKED.to_owned() }
        }
        ShellFault::Silent { status, code, words } => {
            let at = code.and_then(|code| usize::try_from(code - FIRST).ok());
            let name = at.and_then(|at| names.get(at)).cloned().unwrap_or_else(|| names.join(","));
            let words = error_line(&words);
            EnvironmentError::Module { name, words: if words.is_empty() { status } else { words } }
        }
        ShellFault::Hangs { seconds, words } => {
            let words = format!("`module load` does not end within {seconds} s ({})", last_line(&words));
            EnvironmentError::Module { name: names.join(","), words }
        }
        ShellFault::NotStarted(why) => {
            EnvironmentError::Module { name: names.join(","), words: format!("{}: {why}", shell.display()) }
        }
        ShellFault::Floods => {
            let words = "`module load` prints without end".to_owned();
            EnvironmentError::Module { name: names.join(","), words }
        }
    })
}
