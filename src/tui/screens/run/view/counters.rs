//! The lanes of slots below those of the ranks: how busy each was, how full a GPU's memory, and what they tell at the moment
//! shown.

use crate::domain::ids::HostId;
use crate::domain::past::PastSample;
use crate::domain::run::{Placement, Slot};
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::units;
use crate::domain::world::{HostState, RunState};
use crate::tui::canvas::bars::level;
use crate::tui::canvas::{Canvas, width};
use crate::tui::screens::Model;
use crate::tui::screens::run::lanes::{HostLane, SlotLane, VALUE, has_more_values};
use crate::tui::screens::run::view::lanes::{Ahead, Part};
use crate::tui::screens::run::view::strip;

/// Telemetry comes once a second; a sample holds until the next one, this long at most, microseconds.
const SAMPLE_HOLDS_US: i64 = 2_500_000;

/// The lanes of a run's slots.
pub(super) struct Counters<'a> {
    pub(super) model: &'a Model,
    pub(super) run: &'a RunState,
    /// The places of all slots that may have a lane.
    pub(super) all: &'a [usize],
    /// What lies after the moment shown.
    pub(super) ahead: Ahead<'a>,
}

impl Counters<'_> {
    fn placement(&self, at: usize) -> &Placement {
        &self.run.spec.placements[at]
    }

    fn is_gpu(&self, at: usize) -> bool {
        matches!(self.placement(at).slot, Slot::Gpu { .. })
    }

    /// What their height is.
    pub(super) fn axis(&self) -> Option<&'static str> {
        self.all.first()?;
        let gpus = self.all.iter().any(|at| self.is_gpu(*at));
        Some(if gpus { "util 0–100 %" } else { "cpu 0–100 %" })
    }

    /// Draws them from a row on; gives the row behind them.
    pub(super) fn draw(
        &self,
        canvas: &mut Canvas<'_>,
        first: u16,
        lanes: &[SlotLane<'_>],
        part: Part,
        away: impl Fn(u16) -> bool,
    ) -> u16 {
        let mut y = first;
        for lane in lanes {
            match *lane {
                SlotLane::Load(at) => self.load(canvas, y, at, part, &away),
                SlotLane::Memory(at) => self.memory(canvas, y, at, part, &away),
                SlotLane::Host(host, lane) => self.host(canvas, y, (host, lane), part, &away),
            }
            y += 1;
        }
        y
    }

    /// What a host tells: how busy it was, how full its memory, or what went over its network.
    fn host(
        &self,
        canvas: &mut Canvas<'_>,
        y: u16,
        (host, lane): (&HostId, HostLane),
        part: Part,
        away: impl Fn(u16) -> bool,
    ) {
        let Some(state) = self.model.world.hosts.get(host) else { return };
        let samples = self.samples(state, host, part);
        let told = |bounds: (Stamp, Stamp), away: bool| {
            let near = peak_between(&samples, bounds, !away, |past| lane.near(past));
            let far = || self.ahead.history.host_between(host, bounds.0, bounds.1);
            near.or_else(|| lane.far((!away && !self.is_known(state, bounds)).then(far).flatten()?))
        };
        // a network has no whole: the lane is as high as the most of its window
        let columns = || (0..part.w).map(|at| told((part.moment(at), part.moment(at + 1)), away(at)));
        let peak = if lane.is_rate() { columns().flatten().fold(0.0, f64::max) } else { 1.0 };
        let total = state.info.as_ref().and_then(|info| info.memory_total.value().copied());
        let (what, total) = match lane {
            HostLane::Cpu => ("cpu".to_owned(), None),
            HostLane::Memory => (memory_axis(total), total),
            HostLane::Received => (format!("rx {}", short_bytes(peak as u64)), Some(peak as u64)),
            HostLane::Sent => (format!("tx {}", short_bytes(peak as u64)), Some(peak as u64)),
        };
        let end = format!(" {what}");
        let room = (part.x - 2).saturating_sub(width(&end));
        let name = units::middle_cut(&sanitize(host.as_str()), room.into()) + &end;
        canvas.text(1, y, part.x - 2, &name, canvas.theme.dim);
        let share = |bounds, away: bool| told(bounds, away).map(|value| value / peak.max(f64::MIN_POSITIVE));
        draw_line(canvas, y, part, &away, share);
        let (at, is_away) = self.moment(part, &away);
        value(canvas, y, part, share((at, at), is_away), (total, is_away));
    }

    fn load(&self, canvas: &mut Canvas<'_>, y: u16, at: usize, part: Part, away: impl Fn(u16) -> bool) {
        let placement = self.placement(at);
        let dim = canvas.theme.dim;
        let name = if self.is_gpu(at) { placement.to_string() } else { format!("{} cpu", placement.host) };
        canvas.name(1, y, part.x - 2, &name, dim);
        let Some(state) = self.model.world.hosts.get(&placement.host) else { return };
        let samples = self.samples(state, &placement.host, part);
        let (slot, place) = (&placement.slot, state.gpu_of(&placement.slot));
        let util = |past: &PastSample| past.util_at(slot, place);
        let load = |bounds: (Stamp, Stamp), away: bool| {
            let util = peak_between(&samples, bounds, !away, util);
            let of_all = || self.ahead.history.load_between(placement.rank, bounds.0, bounds.1);
            util.or_else(|| (!away && !self.is_known(state, bounds)).then(of_all).flatten())
        };
        draw_line(canvas, y, part, &away, load);
        let (at, is_away) = self.moment(part, &away);
        value(canvas, y, part, load((at, at), is_away), (None, is_away));
        if has_more_values(self.model) && !is_away {
            more_values(canvas, y, part, (state, &samples, at), &placement.slot);
        }
    }

    /// The samples of a host that the window needs, oldest first.
    fn samples<'a>(&'a self, state: &'a HostState, host: &HostId, part: Part) -> Vec<&'a PastSample> {
        let until = part.moment(part.w).plus_micros(SAMPLE_HOLDS_US);
        let all = || state.past.iter().chain(self.ahead.samples(host));
        let needed = all().skip_while(|past| part.start.micros_since(past.at) > SAMPLE_HOLDS_US);
        needed.take_while(|past| past.at <= until).collect()
    }

    /// Whether the samples tell of all that lies between two moments.
    fn is_known(&self, state: &HostState, (from, to): (Stamp, Stamp)) -> bool {
        let is_held = state.past.front().is_some_and(|oldest| to > oldest.at) && from <= self.ahead.moment;
        is_held || self.ahead.known().is_some_and(|(first, last)| from < last && to > first)
    }

    /// The moment of which the values at the end of a lane are, and whether no client followed then.
    fn moment(&self, part: Part, away: impl Fn(u16) -> bool) -> (Stamp, bool) {
        let at = self.ahead.moment.min(part.moment(part.w));
        let column =
            at.micros_since(part.start).max(0) as f64 * f64::from(part.w) / part.window.max(1) as f64;
        (at, away((column as u16).min(part.w.saturating_sub(1))))
    }

    fn memory(&self, canvas: &mut Canvas<'_>, y: u16, at: usize, part: Part, away: impl Fn(u16) -> bool) {
        let placement = self.placement(at);
        let Some(state) = self.model.world.hosts.get(&placement.host) else { return };
        let Some(gpu) = state.gpu_of(&placement.slot) else { return };
        let total = state.info.as_ref().and_then(|info| info.gpus.get(gpu)?.memory_total.value().copied());
        canvas.text(1, y, part.x - 2, &format!(" {}", memory_axis(total)), canvas.theme.dim);
        let of = |past: &PastSample| past.gpus.get(gpu)?.memory().map(f64::from);
        let samples = self.samples(state, &placement.host, part);
        let used = |bounds: (Stamp, Stamp), away: bool| {
            let near = peak_between(&samples, bounds, !away, of);
            let far = || self.ahead.history.memory_between(placement.rank, bounds.0, bounds.1);
            near.or_else(|| (!away && !self.is_known(state, bounds)).then(far).flatten())
        };
        draw_line(canvas, y, part, &away, used);
        let (at, is_away) = self.moment(part, &away);
        value(canvas, y, part, used((at, at), is_away), (total, is_away));
    }
}

/// What the lane of a memory is, and what its height is.
fn memory_axis(total: Option<u64>) -> String {
    total.map_or_else(|| "mem".to_owned(), |total| format!("mem {}", short_bytes(total)))
}

fn short_bytes(bytes: u64) -> String {
    units::bytes(bytes).replace(' ', "")
}

/// The value at the end of a lane, of so much where that is no share; blank where it is not known.
fn value(
    canvas: &mut Canvas<'_>,
    y: u16,
    part: Part,
    share: Option<f64>,
    (total, away): (Option<u64>, bool),
) {
    let (text, dim) = (canvas.theme.text, canvas.theme.dim);
    let (words, style) = match share {
        Some(share) => match total {
            Some(total) => (short_bytes((share * total as f64).round() as u64), text),
            None => (format!("{:.0}%", share * 100.0), text),
        },
        None if away => (strip::AWAY.to_string(), dim),
        None => return,
    };
    canvas.right(part.x + part.w, y, VALUE, &words, style);
}

/// Behind a GPU's lane its used memory and what it draws, as far as they are known.
fn more_values(
    canvas: &mut Canvas<'_>,
    y: u16,
    part: Part,
    (state, samples, at): (&HostState, &[&PastSample], Stamp),
    slot: &Slot,
) {
    let Some(gpu) = state.gpu_of(slot) else { return };
    let text = canvas.theme.text;
    let x = part.x + part.w + VALUE;
    let memory = |past: &PastSample| past.gpus.get(gpu)?.memory().map(f64::from);
    let total = state.info.as_ref().and_then(|info| info.gpus.get(gpu)?.memory_total.value().copied());
    if let Some((share, total)) = peak_between(samples, (at, at), true, memory).zip(total) {
        let words = short_bytes((share * total as f64).round() as u64);
        canvas.right(x, y, VALUE, &words, text);
    }
    let power = |past: &PastSample| past.gpus.get(gpu)?.power().map(f64::from);
    let newest = state.latest().and_then(|(_, sample)| sample.gpus.get(gpu));
    let limit = newest.and_then(|gpu| gpu.power_limit_mw.value().copied());
    if let Some((share, limit)) = peak_between(samples, (at, at), true, power).zip(limit) {
        // whole watts as in the table; a share is kept to a ten-thousandth
        let watts = (share * f64::from(limit) / 1e3 + 0.05).floor();
        let words = format!("{watts:.0}W");
        canvas.right(x + VALUE, y, VALUE + 1, &words, text);
    }
}

/// The peak of a value between two moments; where no sample lies there, with `held` the one that still holds.
fn peak_between(
    samples: &[&PastSample],
    (left, right): (Stamp, Stamp),
    held: bool,
    of: impl Fn(&PastSample) -> Option<f64>,
) -> Option<f64> {
    let after = samples.partition_point(|past| past.at < left);
    let until = samples.partition_point(|past| past.at < right);
    let inside = samples.get(after..until).unwrap_or_default().iter().filter_map(|past| of(past));
    if let Some(peak) = inside.max_by(f64::total_cmp) {
        return Some(peak);
    }
    if !held {
        return None;
    }
    // a sample tells of the second before it, so the next one says more than the last
    let next = samples.get(until).filter(|past| past.at.micros_since(right) < SAMPLE_HOLDS_US);
    let last = until.checked_sub(1).and_then(|at| samples.get(at));
    let last = last.filter(|past| left.micros_since(past.at) < SAMPLE_HOLDS_US);
    of(next.or(last)?)
}

/// Draws a lane of shares; `of` tells the one between two moments, and whether no client followed then.
fn draw_line(
    canvas: &mut Canvas<'_>,
    y: u16,
    part: Part,
    away: impl Fn(u16) -> bool,
    of: impl Fn((Stamp, Stamp), bool) -> Option<f64>,
) {
    let fill = canvas.theme.fill;
    for column in 0..part.w {
        let away = away(column);
        let share = of((part.moment(column), part.moment(column + 1)), away);
        let glyph = if share.is_none() && away { strip::AWAY } else { level(share) };
        canvas.glyph(part.x + column, y, glyph, fill);
    }
}
