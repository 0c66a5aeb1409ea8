//! What leaves the UI for the person's own machine: texts for the clipboard, and files.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64ct::{Base64, Encoding};
use tokio::sync::mpsc::UnboundedSender;

use crate::domain::text::os_text;
use crate::tui::core::{Level, Msg};

/// Names that are tried for one file.
const NAMES: u32 = 1000;

/// The sequence by which a terminal takes a text on its clipboard: OSC 52 of xterm. It is base64, so nothing in the text
/// reaches the terminal as it is.
pub(super) fn to_clipboard(text: &str) -> String {
    format!("\u{1b}]52;c;{}\u{7}", Base64::encode_string(text.as_bytes()))
}

/// Writes a file beside the UI; what became of it comes as a notice.
pub(super) fn save(name: String, text: String, what: String, told: UnboundedSender<Msg>) {
    let write = move || {
        let here = std::env::current_dir().unwrap_or_else(|_| "/tmp".into());
        let msg = match write_new(&here, &name, &text) {
            Ok(path) => Msg::Notice(Level::Info, format!("saved {what} to {}", path.display())),
            Err(error) => {
                let text = format!("can't write {}: {}", here.join(&name).display(), os_text(&error));
                Msg::Notice(Level::Error, text)
            }
        };
        let _ = told.send(msg);
    };
    tokio::task::spawn_blocking(write);
}

/// A new file that its owner alone reads: `NAME`, or `NAME` with a number before its ending where there is one already.
fn write_new(folder: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    let (stem, ending) = name.rsplit_once('.').unwrap_or((name, "txt"));
    let names = std::iter::once(name.to_owned()).chain((2..NAMES).map(|n| format!("{stem}-{n}.{ending}")));
    for name in names {
        let path = folder.join(name);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut file) => return file.write_all(text.as_bytes()).map(|()| path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_clipboard_gets_a_text_and_nothing_else() {
        assert_eq!(to_clipboard("loss 0.5\n\u{1b}]0;x"), "\u{1b}]52;c;bG9zcyAwLjUKG10wO3g=\u{7}");
    }

    #[test]
    fn no_file_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a", "b"].map(|text| write_new(folder.path(), "run.log", text).unwrap());
        assert_eq!(names, ["run.log", "run-2.log"].map(|name| folder.path().join(name)));
        assert_eq!(std::fs::read_to_string(&names[0]).unwrap(), "a");
        assert_eq!(std::fs::metadata(&names[1]).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(write_new(&folder.path().join("none"), "run.log", "a").is_err());
    }
}
