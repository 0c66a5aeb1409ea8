//! Recordings end to end: what is written comes back, whatever happens to the file in between.

mod continued;
mod damage;
mod events;
mod export;
mod replay;
mod round_trip;
mod store;

use std::path::Path;

use hvtui::domain::event::Envelope;
use hvtui::record::{Reader, Writer};

/// Writes a closed recording.
fn write(path: &Path, envelopes: &[Envelope]) {
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
