//! The Doctor screen: a matrix of checks and hosts; below it what was seen in the chosen cell, what goes wrong because of it, and
//! what helps.

mod keys;
pub(super) mod view;

pub(super) use self::keys::act;

use crate::domain::doctor::{Matrix, Row, Verdict};
use crate::domain::ids::HostId;
use crate::domain::time::Stamp;
use crate::tui::core::keymap::{EVERYWHERE, LAUNCH, LISTS};
use crate::tui::core::list::Cursor;
use crate::tui::core::{Effect, Look, LookOf, Screen, layout};
use crate::tui::screens::view::title;
use crate::tui::screens::{Entry, Model};

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Doctor,
    name: "Doctor",
    title: title::action_at,
    keys: &[keys::KEYS, LAUNCH, LISTS, EVERYWHERE],
    act: keys::act,
    missing: keys::missing,
    typed: |_, _| Vec::new(),
    pasted: |_, _| Vec::new(),
    settle,
    mouse: keys::mouse,
    draw: |model, canvas| {
        view::draw(model, canvas);
        None
    },
};

/// The state of the screen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DoctorUi {
    /// The number of the newest look; 0 before the first.
    number: u64,
    /// What it has found so far.
    pub matrix: Matrix,
    /// Whether hosts are still awaited.
    pub is_looking: bool,
    /// When the newest word of it came.
    pub at: Option<Stamp>,
    /// The chosen check.
    pub cursor: Cursor<&'static str>,
    /// The chosen host; `None`: the one whose verdict on the check is worst.
    pub host: Option<HostId>,
}

impl DoctorUi {
    /// The chosen check.
    pub fn row(&self) -> Option<&Row> {
        let on = self.cursor.on?;
        self.matrix.rows.iter().find(|row| row.check == on)
    }

    /// The host whose verdict is shown, and that.
    pub fn chosen(&self) -> Option<(&HostId, Option<&Verdict>)> {
        let row = self.row()?;
        let worst = || {
            let hosts = self.matrix.hosts.iter().filter(|host| row.verdicts.contains_key(*host));
            // the first of the worst
            hosts.rev().max_by_key(|host| row.verdicts.get(*host).map(|verdict| verdict.mark))
        };
        let host = self.host.as_ref().or_else(worst).or_else(|| self.matrix.hosts.first())?;
        Some((host, row.verdicts.get(host)))
    }
}

/// Looks at all hosts, unless that is going on.
fn look(model: &mut Model) -> Vec<Effect> {
    if model.ui.doctor.is_looking {
        return Vec::new();
    }
    let number = model.ui.next_look();
    let doctor = &mut model.ui.doctor;
    doctor.number = number;
    doctor.is_looking = true;
    vec![Effect::CheckHosts(Look { number, of: LookOf::All })]
}

/// The screen is shown: the first time, it looks by itself.
pub(super) fn shown(model: &mut Model) -> Vec<Effect> {
    if model.ui.doctor.number == 0 { look(model) } else { Vec::new() }
}

/// What a look has found so far.
pub(super) fn told(model: &mut Model, number: u64, matrix: Matrix, is_over: bool) {
    let doctor = &mut model.ui.doctor;
    if number == doctor.number {
        (doctor.matrix, doctor.is_looking, doctor.at) = (matrix, !is_over, Some(model.now));
    }
}

fn checks(model: &Model) -> Vec<&'static str> {
    model.ui.doctor.matrix.rows.iter().map(|row| row.check).collect()
}

fn height(model: &Model) -> usize {
    usize::from(layout::doctor_list(model.area()).h)
}

/// Keeps the cursor true after the matrix or the terminal changed.
fn settle(model: &mut Model) {
    let (checks, height) = (checks(model), height(model));
    let doctor = &mut model.ui.doctor;
    doctor.cursor.settle(&checks, height);
    let known = |host: &HostId| doctor.matrix.hosts.contains(host);
    doctor.host = doctor.host.take().filter(known);
}
