//! The table of waits that an import makes of a trace, in a file beside its recording: `run.waits.json` beside `run.mcap`. A
//! recording has no place for it, for its ranks tell steps; the reports of the run read it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::import::{Imported, Spread};
use super::marks;
use crate::domain::ids::RunId;
use crate::domain::wait_table::{RankWaits, WaitSpread, WaitTable};

/// The version of the file.
const VERSION: u32 = 1;
/// A file of ours is smaller: less than 500 bytes a rank.
const MOST_BYTES: u64 = 64 << 20;

/// What is in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    run: RunId,
    waits: WaitTable,
}

/// The table of an import, where its trace tells it.
pub fn of(imported: &Imported) -> Option<WaitTable> {
    let table = imported.waits.as_ref()?;
    let spread = |of: &Spread| {
        let Spread { mean_us, p50_us, p95_us, max_us } = *of;
        WaitSpread { mean_us, p50_us, p95_us, max_us }
    };
    let ranks = table.ranks.iter().map(|one| RankWaits {
        rank: one.rank,
        collectives: one.collectives,
        last_in: one.last_in,
        late: spread(&one.late),
        wait: spread(&one.wait),
        idle_us: one.idle_us,
    });
    let (collectives, told) = (table.collectives, table.told);
    Some(WaitTable { clock: imported.clock.clone(), collectives, told, ranks: ranks.collect() })
}

/// Where the table of a recording is, by its first file.
pub fn path_of(recording: &Path) -> PathBuf {
    marks::beside(recording, "waits")
}

/// Keeps the table of an import beside its recording, where there is one.
///
/// # Errors
/// When the file can't be written.
pub fn keep(imported: &Imported) -> Result<(), Error> {
    let Some(waits) = of(imported) else { return Ok(()) };
    let path = path_of(&imported.recording);
    let kept = Kept { version: VERSION, run: imported.run.clone(), waits };
    let mut text =
        serde_json::to_vec_pretty(&kept).map_err(|error| Error::file(&path)(io::Error::other(error)))?;
    text.push(b'\n');
    marks::replace(&path, &text)
}

/// The table of the recording of this run; `None` where there is none.
///
/// # Errors
/// When the file can't be read or is none of ours.
pub fn read(recording: &Path, run: &RunId) -> Result<Option<WaitTable>, Error> {
    let path = path_of(recording);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::file(&path)(error)),
    };
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text).map_err(Error::file(&path))?;
    let kept: Kept = serde_json::from_slice(&text).map_err(|error| Error::Waits {
        path: path.clone(),
        reason: format!("not the table of waits of an import ({error}): import the trace again"),
    })?;
    // of a file of the same name that was there before
    let is_of_it = kept.version == VERSION && kept.run == *run;
    Ok(Some(kept.waits).filter(|_| is_of_it))
}
