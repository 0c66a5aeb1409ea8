//! What one frame of the screen looks at, found once: the run, how its ranks stand, and what of it there is to show. Drawing, keys
//! and mouse lay the screen out by it.

use crate::domain::history::RunHistory;
use crate::domain::ids::{HostId, RunId};
use crate::domain::time::Stamp;
use crate::domain::world::RunState;
use crate::tui::core::layout::{RunBands, RunWants};
use crate::tui::core::words::wrap;
use crate::tui::core::{Screen, layout};
use crate::tui::screens::Model;
use crate::tui::screens::run::lanes::{self, Lanes, Slots};
use crate::tui::screens::run::rows::{Look, RankRow};
use crate::tui::screens::run::verdict::{self, Verdict};
use crate::tui::screens::run::{timeline, whole};

/// Lines of a verdict at most.
const VERDICT_LINES: usize = 3;

/// What one frame looks at.
pub struct Frame<'a> {
    /// What is drawn.
    pub(super) model: &'a Model,
    /// The run that is shown.
    pub(super) id: &'a RunId,
    /// The same, as it was at the moment shown.
    pub(super) run: &'a RunState,
    /// What is known of it from its start on; in a replay also what lies behind the playhead.
    pub(super) history: &'a RunHistory,
    /// Its hosts in rank order.
    pub(super) hosts: Vec<HostId>,
    /// How its ranks stand.
    pub(super) look: Look<'a>,
    /// The sentence on it.
    pub(super) verdict: Verdict,
    /// The rows of the table of ranks.
    pub(super) rows: Vec<RankRow>,
    /// The ends of the timeline.
    pub(super) timeline: (Stamp, Stamp),
    /// Its lanes of phases.
    pub(super) lanes: Lanes<'a>,
    /// What may have lanes below them.
    pub(super) slots: Slots<'a>,
}

impl<'a> Frame<'a> {
    /// Of the run that is shown; `None` before its first event.
    pub fn of(model: &'a Model) -> Option<Self> {
        let (id, run) = model.shown_run()?;
        let look = Look::of(model, run);
        let rows = look.rows();
        Some(Self {
            model,
            id,
            run,
            history: whole::history(model, run),
            hosts: run.spec.hosts(),
            verdict: verdict::shown(&look),
            timeline: timeline(model),
            lanes: Lanes::of(model, run, &rows),
            slots: Slots::of(model, run),
            look,
            rows,
        })
    }

    /// Whether the screen is that of a replay.
    pub(super) fn is_replay(&self) -> bool {
        self.model.ui.screen == Screen::Replay
    }

    /// Whether the heat map stands in the place of table and timeline.
    pub(super) fn is_heat(&self) -> bool {
        self.is_replay() && self.model.ui.replay.heat
    }

    /// The rows of the parts of the screen.
    pub fn bands(&self) -> RunBands {
        let (model, run) = (self.model, self.run);
        let width = usize::from(model.size.0).saturating_sub(2);
        let most = if run.collected.is_empty() { VERDICT_LINES } else { 2 * VERDICT_LINES };
        let verdict = wrap(&self.verdict.text, width).len().clamp(1, most) as u16
            + u16::from(run.collectives_words().is_some());
        let ranks = u16::try_from(self.rows.len()).unwrap_or(u16::MAX);
        if self.is_heat() {
            return layout::heat(model.area(), (1, verdict), ranks);
        }
        let lanes = if self.is_replay() || model.settings.timeline { lanes::wanted(self) } else { 0 };
        let wants = RunWants {
            replay: self.is_replay(),
            stages: 1,
            verdict,
            ranks,
            charts: !self.history.points.is_empty(),
            lanes: u16::try_from(lanes).unwrap_or(u16::MAX),
        };
        layout::run(model.area(), wants)
    }
}
