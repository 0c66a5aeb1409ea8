//! Which file the login shell of a host reads where it is neither started as one nor interactive, and what that file says to put
//! folders on the search path.

use std::path::Path;

use memchr::memmem;
use serde::{Deserialize, Serialize};

/// Files of the host's that set variables before zsh reads the user's own.
const SETS: [&str; 3] = ["/etc/zsh/zshenv", "/etc/zshenv", "/etc/environment"];

/// A login shell: ssh starts commands by it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Shell {
    /// Also where it is not told.
    #[default]
    Bash,
    Zsh,
    /// One whose files lie in the folder `ZDOTDIR`.
    ZshElsewhere,
    Csh,
    /// One with a file of its own, which it reads in place of csh's.
    Tcsh,
    Fish,
    /// One that reads none then, as dash and ksh.
    Other,
}

impl Shell {
    /// What login has put into `SHELL`.
    pub(super) fn here(home: &Path) -> Self {
        let named = std::env::var("SHELL").ok().filter(|shell| !shell.is_empty());
        let shell = named.map_or_else(Self::default, |shell| Self::of(&shell, home.join(".tcshrc").exists()));
        let elsewhere = std::env::var_os("ZDOTDIR").filter(|folder| !folder.is_empty());
        let is_set = elsewhere.is_some_and(|folder| Path::new(&folder) != home);
        let own = std::fs::read(home.join(".zshenv")).ok();
        let is_of_all = || SETS.iter().any(|file| std::fs::read(file).is_ok_and(|text| names_folder(&text)));
        shell.led_by(is_set, own.as_deref(), is_set && is_of_all())
    }

    /// With `ZDOTDIR` set or not, by the file at home and by whether one of the host's own sets it: where the file at home does, that one
    /// is read before. What only this process has been given a command over ssh is not.
    fn led_by(self, is_set: bool, own: Option<&[u8]>, is_of_all: bool) -> Self {
        let is_before = own.is_none_or(|own| is_of_all && !names_folder(own));
        let is_led = self == Self::Zsh && is_set && is_before;
        if is_led { Self::ZshElsewhere } else { self }
    }

    fn of(program: &str, has_tcshrc: bool) -> Self {
        match program.rsplit('/').next().unwrap_or_default() {
            "bash" => Self::Bash,
            "zsh" => Self::Zsh,
            "csh" | "tcsh" if has_tcshrc => Self::Tcsh,
            "csh" | "tcsh" => Self::Csh,
            "fish" => Self::Fish,
            _ => Self::Other,
        }
    }

    /// The file, as a person names it.
    pub(super) fn file(self) -> Option<&'static str> {
        match self {
            Self::Bash => Some("~/.bashrc"),
            Self::Zsh => Some("~/.zshenv"),
            Self::ZshElsewhere => Some("$ZDOTDIR/.zshenv"),
            Self::Csh => Some("~/.cshrc"),
            Self::Tcsh => Some("~/.tcshrc"),
            Self::Fish => Some("~/.config/fish/config.fish"),
            Self::Other => None,
        }
    }

    /// Its line for these folders.
    pub(super) fn line(self, folders: &[&str]) -> String {
        match self {
            Self::Bash | Self::Zsh | Self::ZshElsewhere | Self::Other => {
                format!("export PATH={}:$PATH", folders.join(":"))
            }
            Self::Csh | Self::Tcsh => format!("setenv PATH {}:$PATH", folders.join(":")),
            Self::Fish => format!("set -gx PATH {} $PATH", folders.join(" ")),
        }
    }

    /// The command that puts a line at the top of its file, which stays the one that it is, with its mode and behind its links. Any shell
    /// takes it: some speak another language, and one may be set not to write over a file (`noclobber`).
    pub(super) fn put_at_top(self, line: &str) -> Option<String> {
        // without the variable nothing is written
        let file = self.file()?.replace("$ZDOTDIR", "${ZDOTDIR:?}");
        let line = line.replace('$', "\\$");
        Some(format!(
            "sh -c 'f={file}; mkdir -p \"${{f%/*}}\"; {{ echo \"{line}\"; if [ -e \"$f\" ]; then cat \"$f\"; fi; }} > \"$f.hvtui\" && \
             cat \"$f.hvtui\" > \"$f\" && rm \"$f.hvtui\"'"
        ))
    }
}

fn names_folder(text: &[u8]) -> bool {
    memmem::find(text, b"ZDOTDIR").is_some()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn each_shell_is_told_by_its_own_file_and_in_its_own_words() {
        let of = Shell::of;
        let folders = ["/opt/a/bin", "/opt/b/bin"];
        for (shell, file, line) in [
            (of("/bin/bash", true), "~/.bashrc", "export PATH=/opt/a/bin:/opt/b/bin:$PATH"),
            (of("/usr/bin/zsh", false), "~/.zshenv", "export PATH=/opt/a/bin:/opt/b/bin:$PATH"),
            (of("/bin/csh", false), "~/.cshrc", "setenv PATH /opt/a/bin:/opt/b/bin:$PATH"),
            (of("/usr/bin/tcsh", true), "~/.tcshrc", "setenv PATH /opt/a/bin:/opt/b/bin:$PATH"),
            (
                of("/usr/bin/fish", false),
                "~/.config/fish/config.fish",
                "set -gx PATH /opt/a/bin /opt/b/bin $PATH",
            ),
        ] {
            assert_eq!((shell.file(), shell.line(&folders).as_str()), (Some(file), line));
            let command = shell.put_at_top(line).unwrap();
            assert!(command.contains(file) && command.contains("/opt/b/bin"), "{command}");
        }
        let dash = of("/bin/dash", false);
        assert_eq!((dash, dash.file(), dash.put_at_top("x")), (Shell::Other, None, None));
    }

    #[test]
    fn zsh_reads_its_file_in_another_folder_where_that_is_set_before() {
        let own: Option<&[u8]> = Some(b"");
        assert_eq!(Shell::Zsh.led_by(true, own, true), Shell::ZshElsewhere);
        assert_eq!(Shell::Zsh.led_by(true, None, false), Shell::ZshElsewhere, "there is none at home");
        assert_eq!(Shell::Zsh.led_by(true, own, false), Shell::Zsh, "it is set for this process alone");
        assert_eq!(Shell::Zsh.led_by(false, own, false), Shell::Zsh);
        assert_eq!(Shell::Zsh.led_by(true, Some(b"export ZDOTDIR=~/.config/zsh\n"), true), Shell::Zsh);
        assert_eq!(Shell::Bash.led_by(true, own, true), Shell::Bash);
    }

    #[test]
    fn what_stands_in_the_file_stays_below_the_line() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::ZshElsewhere, Shell::Csh, Shell::Fish] {
            let home = tempfile::tempdir().unwrap();
            let elsewhere = home.path().join("my files");
            let file = shell.file().unwrap().replace('~', home.path().to_str().unwrap());
            let file = PathBuf::from(file.replace("$ZDOTDIR", elsewhere.to_str().unwrap()));
            let line = shell.line(&["/opt/a/bin"]);
            for _ in 0..2 {
                let mut command = std::process::Command::new("sh");
                // it writes over no file
                command.args(["-C", "-c"]).arg(shell.put_at_top(&line).unwrap());
                command.env("HOME", home.path()).env("ZDOTDIR", &elsewhere);
                assert!(command.status().unwrap().success(), "{shell:?}");
            }
            let text = std::fs::read_to_string(&file).unwrap();
            assert_eq!(text, format!("{line}\n{line}\n"), "{shell:?}");
            assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
        }
    }
}
