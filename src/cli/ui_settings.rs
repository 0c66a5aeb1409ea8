//! What a person has chosen about the look, in `<state>/ui.json`. A file that can't be read is as good as none: the look is no
//! reason not to start.

use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value};

use crate::tui::core::Settings;

/// The file's name.
const FILE: &str = "ui.json";

/// The settings of this user.
pub(super) fn load(state: &Path) -> Settings {
    let text = std::fs::read(state.join(FILE)).unwrap_or_default();
    let kept: Map<String, Value> = serde_json::from_slice(&text).unwrap_or_default();
    let mut settings = Settings::default();
    // what another version wrote and this one does not know costs itself alone
    for (name, value) in kept {
        let Ok(mut with) = serde_json::to_value(&settings) else { continue };
        with[name] = value;
        settings = serde_json::from_value(with).unwrap_or(settings);
    }
    settings
}

/// Keeps them, whole or not at all.
///
/// # Errors
/// The folder can't be written.
pub(super) fn save(state: &Path, settings: &Settings) -> std::io::Result<()> {
    std::fs::create_dir_all(state)?;
    let mut file = tempfile::NamedTempFile::new_in(state)?;
    serde_json::to_writer_pretty(&mut file, settings)?;
    file.write_all(b"\n")?;
    file.persist(state.join(FILE))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::run_list::RunOrder;
    use crate::tui::core::ThemeName;
    use crate::tui::core::orders::{HostOrder, HostsOrdered};

    #[test]
    fn what_was_chosen_is_found_again_and_garbage_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        assert_eq!(load(&state), Settings::default());
        let chosen = Settings {
            theme: ThemeName::Light,
            hosts: HostsOrdered { by: HostOrder::FreeGpus, reversed: true },
            runs: RunOrder::Largest,
            wrap: true,
            timeline: true,
            ..Settings::default()
        };
        save(&state, &chosen).unwrap();
        assert_eq!(load(&state), chosen);
        std::fs::write(
            state.join(FILE),
            "{\"theme\":\"light\",\"hosts\":{\"by\":\"name\"},\"runs\":\"longest\"}",
        )
        .unwrap();
        let older = load(&state);
        assert_eq!(
            (older.theme, older.hosts.by, older.runs),
            (ThemeName::Light, HostOrder::Name, RunOrder::Longest)
        );
        let newer = "{\"runs\":\"of a later version\",\"theme\":\"light\",\"more\":1}";
        std::fs::write(state.join(FILE), newer).unwrap();
        assert_eq!(load(&state), Settings { theme: ThemeName::Light, ..Settings::default() });
        std::fs::write(state.join(FILE), "{\"theme\":\"of a later version\"").unwrap();
        assert_eq!(load(&state), Settings::default());
    }
}
