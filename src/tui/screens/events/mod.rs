//! The Events screen: what the cluster tells by itself, and the notices of this program, newest first below what goes on.

mod keys;
pub(super) mod view;

use std::cmp::Reverse;
use std::collections::VecDeque;

use crate::domain::alerts::{Alert, AlertKind};
use crate::domain::gpu::health::Severity;
use crate::domain::recording_cost::RecordingCost;
use crate::domain::time::Stamp;
use crate::tui::core::keymap::{EVERYWHERE, LAUNCH, LISTS};
use crate::tui::core::list::Cursor;
use crate::tui::core::{Effect, Level, Screen, layout};
use crate::tui::screens::view::title;
use crate::tui::screens::{Entry, Model, runs};

/// How many notices are kept.
const NOTICES: usize = 128;

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Events,
    name: "Events",
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
pub struct EventsUi {
    /// The cursor.
    pub cursor: Cursor<EventId>,
    /// What it costs to write recordings, while some are written.
    pub recording: Option<RecordingCost>,
    /// Notices of this program, oldest first.
    notices: VecDeque<Notice>,
    /// How many notices there have been.
    noticed: u64,
    /// How many begins and ends of alerts have been told.
    told: u64,
}

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventId {
    /// The alert of this number.
    Alert(u64),
    /// The notice of this number.
    Notice(u64),
}

/// A notice that was shown for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    number: u64,
    /// When.
    pub at: Stamp,
    /// How much it matters.
    pub level: Level,
    /// Its words.
    pub text: String,
}

/// How long after an alert began a notice may come that tells the same, microseconds.
const SAME_US: i64 = 60_000_000;

impl Notice {
    /// Whether it tells no more than an alert: an XID error of the same GPU, the end of a run whose rank failed first.
    fn repeats(&self, alert: &Alert) -> bool {
        let until = alert.until.unwrap_or(self.at);
        let is_near = alert.since <= self.at && self.at.micros_since(until) <= SAME_US;
        let place = &alert.place;
        is_near
            && match (alert.kind, &place.host, place.gpu, &place.run) {
                (AlertKind::Xid, Some(host), Some(gpu), _) => {
                    self.text == format!("{host}:{gpu} {}", alert.words)
                }
                (AlertKind::RankFailed, _, _, Some(run)) => {
                    self.level == Level::Error
                        && self.text.starts_with(&format!("run {} ended: ", run.short()))
                }
                _ => false,
            }
    }
}

/// A line of the list.
#[derive(Debug, Clone, Copy)]
pub enum EventRow<'a> {
    /// An alert.
    Alert(&'a Alert),
    /// A notice.
    Notice(&'a Notice),
}

impl EventRow<'_> {
    fn id(&self) -> EventId {
        match self {
            Self::Alert(alert) => EventId::Alert(alert.number),
            Self::Notice(notice) => EventId::Notice(notice.number),
        }
    }

    /// What goes on first, then the newest.
    fn order(&self) -> impl Ord + use<> {
        match self {
            Self::Alert(alert) => (!alert.is_active(), Reverse(alert.since)),
            Self::Notice(notice) => (true, Reverse(notice.at)),
        }
    }
}

impl EventsUi {
    /// Keeps a notice.
    pub(super) fn keep(&mut self, at: Stamp, level: Level, text: &str) {
        if self.notices.len() >= NOTICES {
            self.notices.pop_front();
        }
        self.noticed += 1;
        self.notices.push_back(Notice { number: self.noticed, at, level, text: text.to_owned() });
    }
}

/// All lines, in the order shown.
pub fn rows(model: &Model) -> Vec<EventRow<'_>> {
    let alerts = model.world.alerts.all().rev().map(EventRow::Alert);
    let told = |notice: &&Notice| !model.world.alerts.all().any(|alert| notice.repeats(alert));
    let notices = model.ui.events.notices.iter().rev().filter(told).map(EventRow::Notice);
    let mut rows: Vec<EventRow<'_>> = alerts.chain(notices).collect();
    rows.sort_by_key(EventRow::order);
    rows
}

fn ids(model: &Model) -> Vec<EventId> {
    rows(model).iter().map(EventRow::id).collect()
}

/// Keeps the cursor true after the list changed.
fn settle(model: &mut Model) {
    let ids = ids(model);
    let height = usize::from(layout::events_list(model.area()).h);
    model.ui.events.cursor.settle(&ids, height);
}

/// Opens the screen over the one that is shown; the key that opened it closes it.
pub(super) fn open(model: &mut Model) -> Vec<Effect> {
    if model.ui.screen == Screen::Events {
        model.ui.back();
    } else {
        model.ui.events.cursor = Cursor::default();
        model.ui.open(Screen::Events);
    }
    Vec::new()
}

/// What the hosts told of their runs: those that nothing here follows are told.
pub(super) fn hear(model: &mut Model) {
    let (inventory, now) = (std::mem::take(&mut model.inventory), model.now);
    model.live_world().hear(&inventory, now);
    model.inventory = inventory;
}

/// What has begun or ended since it was last asked: the command of the hosts file gets all of it, and a notice says what
/// the screen does not show.
pub(super) fn tell_news(model: &mut Model) -> Vec<Effect> {
    let told = model.ui.events.told;
    if model.ui.replay.alone || model.live_world().alerts.serial() == told {
        return Vec::new();
    }
    let news = model.live_world().alerts.news_since(told);
    model.ui.events.told = model.live_world().alerts.serial();
    let mut effects = Vec::new();
    for one in news {
        if !one.ended && !is_visible(model, &one.alert) {
            let level = match one.alert.severity {
                _ if one.alert.kind == AlertKind::LiveRun => Level::Info,
                Severity::Look => Level::Warning,
                Severity::Act => Level::Error,
            };
            let leads_to_runs = one.alert.kind == AlertKind::LiveRun && model.ui.screen != Screen::Runs;
            let hint = if leads_to_runs { ": r opens Runs" } else { "" };
            let place = one.alert.place.to_string();
            let text = format!("{place} {}{hint}", one.alert.words);
            model.toast(level, text, Some(Box::new(one.alert.clone())));
        }
        effects.push(Effect::Alert(Box::new(one), model.now));
    }
    effects
}

/// Drops the notices of alerts that the screen has come to show.
pub(super) fn drop_visible(model: &mut Model) {
    let mut toasts = std::mem::take(&mut model.ui.toasts);
    toasts.retain(|toast| toast.alert.as_ref().is_none_or(|alert| !is_visible(model, alert)));
    model.ui.toasts = toasts;
}

/// Whether the screen shows an alert that has just begun, or another notice tells it.
fn is_visible(model: &Model, alert: &Alert) -> bool {
    let of_shown_run = || alert.place.run.as_ref() == model.shown_run().map(|(run, _)| run);
    let is_live = !model.is_replay();
    match (model.ui.screen, alert.kind) {
        (Screen::Events, kind) => is_live || kind == AlertKind::DiskFull,
        // a notice of its own says what has happened
        (_, AlertKind::Xid) => is_live,
        // the host's own word is a notice
        (_, AlertKind::DiskFull)
        | (
            Screen::Cluster,
            AlertKind::HostDown
            | AlertKind::GpuLost
            | AlertKind::Temperature
            | AlertKind::Slowdown
            | AlertKind::Ecc
            | AlertKind::HeldIdle
            | AlertKind::Straggler,
        ) => true,
        (Screen::Cluster, _) => layout::cluster_events(model.area()).h > 0,
        (Screen::Runs, AlertKind::LiveRun) => alert.place.run.as_ref().is_some_and(|run| {
            model.world.runs.contains_key(run) || runs::spec_elsewhere(model, run).is_some()
        }),
        (Screen::Run, AlertKind::Hang | AlertKind::Straggler | AlertKind::RankFailed) => of_shown_run(),
        _ => false,
    }
}
