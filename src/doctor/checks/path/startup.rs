//! Which startup file of a shell puts a folder on the search path.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Those of a person, and those of the system.
const FILES: [&str; 13] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".config/fish/config.fish",
    ".tcshrc",
    ".cshrc",
    ".login",
    "/etc/bash.bashrc",
    "/etc/zsh/zshrc",
    "/etc/profile",
];
/// Bytes of a file that is read.
const LONGEST: u64 = 1 << 20;

/// A line of a startup file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SetIn {
    /// `~/.bashrc`.
    pub(super) file: String,
    /// Counted from 1.
    pub(super) line: usize,
    /// The line above it that ends the file for shells that are not interactive, as Debian's `~/.bashrc` has one.
    pub(super) guard: Option<usize>,
}

impl SetIn {
    pub(super) fn words(&self) -> String {
        let Self { file, line, guard } = self;
        let guard = guard.map_or_else(String::new, |guard| {
            format!(", below line {guard}, which ends the file for shells that are not interactive")
        });
        format!("line {line} of {file} sets it{guard}")
    }
}

/// The first file that names a folder.
pub(super) fn set_in(folder: &str, home: &Path) -> Option<SetIn> {
    FILES.iter().find_map(|name| {
        let path = home.join(name);
        let is_read = std::fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() <= LONGEST);
        let text = std::fs::read(&path).ok().filter(|_| is_read)?;
        let (line, guard) = line_of(folder, &home.display().to_string(), &String::from_utf8_lossy(&text))?;
        let file = if name.starts_with('/') { (*name).to_owned() } else { format!("~/{name}") };
        Some(SetIn { file, line, guard })
    })
}

fn line_of(folder: &str, home: &str, text: &str) -> Option<(usize, Option<usize>)> {
    let mut names = vec![folder.to_owned()];
    if let Some(rest) = folder.strip_prefix(home).filter(|rest| rest.starts_with('/')) {
        names.extend(["$HOME", "${HOME}", "~"].map(|home| format!("{home}{rest}")));
    }
    let mut guard = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('#') {
            continue;
        }
        if is_guard(line) {
            guard.get_or_insert(at + 1);
        } else if names.iter().any(|name| has(line, name)) {
            return Some((at + 1, guard));
        }
    }
    None
}

/// `case $- in`, `[[ $- != *i* ]] && return`, `[ -z "$PS1" ] && return`; of csh `if (! $?prompt) exit`, of fish
/// `status is-interactive; or exit`.
fn is_guard(line: &str) -> bool {
    let ends = line.contains("exit") || line.contains("return");
    line.contains("$-") && (line.starts_with("case ") || line.contains("*i*"))
        || line.contains("PS1") && line.contains("return")
        || (line.contains("?prompt") || line.contains("is-interactive")) && ends
}

/// Whether a line holds a path, and not the beginning of another one's name alone.
fn has(line: &str, path: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || "_-.".contains(c));
    line.match_indices(path).any(|(at, _)| ends(&line[at + path.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_and_what_keeps_it_from_being_read_are_found() {
        let debian = "# ~/.bashrc\ncase $- in\n    *i*) ;;\n      *) return;;\nesac\n# PATH=/root/hvd/bin\nexport PATH=$HOME/hvd/bin:$PATH\n";
        assert_eq!(line_of("/root/hvd/bin", "/root", debian), Some((7, Some(2))));
        let of = |text: &str| line_of("/root/hvd/bin", "/root", text);
        assert_eq!(of("[ -z \"$PS1\" ] && return\nPATH=~/hvd/bin:$PATH"), Some((2, Some(1))));
        assert_eq!(of("[[ $- != *i* ]] && return\nPATH=${HOME}/hvd/bin"), Some((2, Some(1))));
        assert_eq!(of("PATH=/root/hvd/bin:$PATH\ncase $- in *i*) ;; *) return ;; esac"), Some((1, None)));
        assert_eq!(of("PATH=/root/hvd/binaries:$PATH"), None);
        // as `conda init` writes it
        let conda = "__conda_setup=\"$('/opt/conda/bin/conda' 'shell.bash' 'hook' 2> /dev/null)\"";
        assert_eq!(line_of("/opt/conda/bin", "/root", conda), Some((1, None)));
        assert_eq!(of("if (! $?prompt) exit\nset path = (~/hvd/bin $path)"), Some((2, Some(1))));
        assert_eq!(of("if ($?prompt) set prompt = '> '\nsetenv PATH ~/hvd/bin:$PATH"), Some((2, None)));
        assert_eq!(of("status is-interactive; or exit\nfish_add_path ~/hvd/bin"), Some((2, Some(1))));
    }
}
