//! Recordings end to end: what is written comes back, whatever happens to the file in between.

mod cast;
mod continued;
mod damage;
pub(crate) mod events;
mod export;
mod export_cli;
mod export_formats;
mod export_selection;
mod golden;
mod repair;
mod replay;
mod round_trip;
mod store;
mod trace_viewer;

use std::path::Path;

use hvtui::domain::event::Envelope;
use hvtui::record::{Error, Reader, Recorder, Writer};

pub(crate) use damage::of_a_later_version;

/// Writes a closed recording.
pub(crate) fn write(path: &Path, envelopes: &[Envelope]) {
    let mut writer = Writer::new(std::fs::File::create(path).unwrap()).unwrap();
    for envelope in envelopes {
        writer.push(envelope).unwrap();
    }
    writer.finish().unwrap();
}

/// All that a recording gives back.
fn read(reader: &Reader) -> Vec<Envelope> {
    reader.envelopes(..).collect::<Result<_, _>>().unwrap()
}

/// Asserts that no second recording is begun where one is.
fn assert_refused(path: &Path) {
    let refused = Recorder::start(path.to_owned(), || ()).unwrap().finish().unwrap_err();
    assert!(
        matches!(refused, Error::NotStarted(_)) && refused.to_string().contains("never overwritten"),
        "{refused}"
    );
}
