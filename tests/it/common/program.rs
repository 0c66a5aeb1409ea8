//! The program that is tested.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::built::as_the_builder;
use super::in_time::OutputInTime;

/// hvtui as Cargo built it, without symbols: half as long or less. Each client and each agent hashes itself, and each host of a test has a
/// copy of it, so that a tenth of the processor went into symbols. Where they can't be taken away, as it is.
pub(crate) fn hvtui() -> &'static str {
    const BUILT: &str = env!("CARGO_BIN_EXE_hvtui");
    static STRIPPED: OnceLock<Option<String>> = OnceLock::new();
    STRIPPED.get_or_init(|| stripped(Path::new(BUILT))).as_deref().unwrap_or(BUILT)
}

/// A copy without symbols in `target/<profile>/stripped`, made anew where it is not of this very build.
fn stripped(built: &Path) -> Option<String> {
    const MAKE: &str = r#"mkdir -p "$2" && strip -o "$2/hvtui.$$" "$1" && touch -r "$1" "$2/hvtui.$$" && mv "$2/hvtui.$$" "$2/hvtui""#;
    let folder = built.parent()?.join("stripped");
    let copy = folder.join("hvtui");
    let written = |path: &Path| std::fs::metadata(path).and_then(|about| about.modified()).ok();
    if written(&copy) != written(built) {
        let mut make = Command::new("sh");
        make.args(["-c", MAKE, "sh"]).arg(built).arg(&folder);
        as_the_builder(&mut make);
        make.output_in_time().ok().filter(|made| made.status.success())?;
    }
    copy.to_str().map(str::to_owned)
}
