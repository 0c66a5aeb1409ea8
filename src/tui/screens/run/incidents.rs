//! What went wrong or stands out in the run that is shown, and when: `{` and `}` stop there and say it, the strip of the whole run
//! shows it. What it is, [`incidents`] finds.

use std::sync::Arc;

use crate::domain::ids::RunId;
use crate::domain::incidents::{self, Incident, Sources};
use crate::domain::outage::Outage;
use crate::domain::time::Stamp;
use crate::domain::world::RunState;
use crate::tui::screens::run::{away_words, unattended, whole};
use crate::tui::screens::{Model, replay};

/// What stands out is looked for again after so much more of the run, microseconds.
const AGAIN_US: i64 = 1_000_000;

/// What stands out in the steps and loads of a run, as far as it has been looked through.
#[derive(Debug, Clone, PartialEq)]
pub struct Noticed {
    run: RunId,
    /// Up to when.
    until: Stamp,
    ended: bool,
    found: Vec<Incident>,
}

/// Looks through the run that is shown, where more of it is known than before. A replay that goes back keeps what it has seen.
pub(super) fn notice(model: &mut Model) {
    // a glimpse has some moments alone, and what replaces it ends at the same one
    if model.ui.replay.is_glimpse {
        return;
    }
    let Some((id, shown)) = model.shown_run() else { return };
    let run = whole::now(model, shown).unwrap_or(shown);
    let (until, ended) = (run.last_at, run.outcome.is_some());
    let kept = model.ui.run.noticed.as_deref().filter(|noticed| noticed.run == *id);
    let is_known = |kept: &Noticed| {
        let more = until.micros_since(kept.until);
        more <= 0 || (more < AGAIN_US && kept.ended == ended)
    };
    if kept.is_some_and(is_known) {
        return;
    }
    let noticed = Noticed { run: id.clone(), until, ended, found: incidents::noticed(run) };
    model.ui.run.noticed = Some(Arc::new(noticed));
}

/// What stands out in the steps and loads of the run that is shown.
pub fn noticed<'a>(model: &'a Model, run: &RunState) -> &'a [Incident] {
    let noticed = model.ui.run.noticed.as_deref().filter(|noticed| noticed.run == run.spec.id);
    noticed.map_or(&[], |noticed| &noticed.found)
}

/// The times in which hosts of it were lost to a client that followed it.
pub(super) fn lost_hosts<'a>(model: &'a Model, run: &'a RunState) -> impl Iterator<Item = &'a Outage> {
    incidents::lost_hosts(whole::history(model, run), unattended(model, run))
}

/// All that is known of the run that is shown, in rising order, one a moment.
pub fn all(model: &Model, run: &RunState) -> Vec<Incident> {
    let clock_jumps = whole::clock_jumps(model, run);
    let sources = Sources {
        run,
        history: whole::history(model, run),
        alerts: whole::alerts(model, run),
        clock_jumps: &clock_jumps,
        unattended: unattended(model, run),
        away_words: away_words(model),
        lost: replay::state(model).map_or(&[][..], |state| &state.lost),
        noticed: noticed(model, run),
        range: whole::range(model, run),
    };
    sources.all()
}
