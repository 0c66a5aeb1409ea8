//! The timeline: a lane a rank with its phases around the moment shown, and a lane a slot with its load.

use std::collections::BTreeSet;
use std::ops::Range;

use ratatui::style::{Modifier, Style};

use crate::domain::ahead::TimelineAhead;
use crate::domain::clock_check::{self, ClockCheck, ClocksApart, Passage};
use crate::domain::history::RunHistory;
use crate::domain::hooks::StepsBy;
use crate::domain::ids::{HostId, Rank};
use crate::domain::past::PastSample;
use crate::domain::phase_window::PhaseWindow;
use crate::domain::recent_steps::Arrived;
use crate::domain::text::sanitize;
use crate::domain::time::{HostTime, Stamp};
use crate::domain::timing::{Phase, StepTiming};
use crate::domain::trainers::Trainer;
use crate::domain::units;
use crate::domain::world::HostState;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::layout::Band;
use crate::tui::core::words::clock_time;
use crate::tui::screens::replay::{self, selection::selected};
use crate::tui::screens::run::frame::Frame;
use crate::tui::screens::run::lanes::{Lane, Shown, trainer_lanes};
use crate::tui::screens::run::marks::shown as shown_marks;
use crate::tui::screens::run::view::communication;
use crate::tui::screens::run::view::counters::Counters;
use crate::tui::screens::run::view::ruler;
use crate::tui::screens::run::view::shares::{self, Totals};
use crate::tui::screens::run::view::strip;
use crate::tui::screens::run::view::strip::Segment;
use crate::tui::screens::run::{away_words, near, unattended, whole};
use crate::tui::screens::{Mode, Model};

/// Of so many ranks it is looked whether what they did agrees with their hosts' clocks.
const CLOCK_RANKS: usize = 64;
/// No step is told so long before its end by its host's clock, microseconds.
const EARLY_US: i64 = 1_000_000;
/// Of so many hosts each clock is told.
const MOST_CLOCKS: usize = 4;
/// Columns of a rule beside its words: the line and a blank before them, the same behind.
const LEAST_RULE: u16 = 4;

/// Draws head and lanes.
pub(super) fn draw(frame: &Frame<'_>, canvas: &mut Canvas<'_>, band: Band) {
    let (model, run, (start, end)) = (frame.model, frame.run, frame.timeline);
    let window = end.micros_since(start);
    let below = band.below_head();
    let shown = Shown::of(frame, below.h.into());
    let lanes = Band { h: below.h - u16::from(shown.ruler), ..below };
    let (rank_room, culprit) = (shown.room, frame.look.culprit());
    let (x, w) = frame.slots.columns(model, run);
    let part = Part { x, w, start, window };
    let ahead = Ahead::of(frame);
    let counters = Counters { model, run, all: &frame.slots.counters, ahead };
    let note = (usize::from(lanes.h) > rank_room).then(|| counters.axis()).flatten();
    let hidden = [shown.hidden, shown.hidden_slots];
    let marks: Vec<u16> = mark_columns(model, part).collect();
    // what the words of the head cover stands on the row of times; where there is none they make room
    let right = canvas.width();
    let note = note.filter(|note| shown.ruler || marks.iter().all(|x| x + width(note) + 3 < right));
    let words = head(frame, canvas, (band.y, !marks.is_empty()), (clocks_apart(frame), hidden, note));
    let spans = unattended(model, run);
    let lost = replay::state(model).map_or(&[][..], |state| &state.lost);
    let away = |column: u16| {
        let (from, to) = (part.moment(column), part.moment(column + 1));
        is_away(spans, from, to) || is_away(lost, from, to)
    };
    let mut y = lanes.y;
    for (lane, one) in shown.ranks {
        let marked = culprit == Some(one.key);
        let style = if marked { canvas.theme.bad } else { canvas.theme.text };
        let host = model.world.hosts.get(&one.rank.placement.host);
        if matches!(lane, Lane::Communication(_)) {
            let parts = communication::segments(ahead, run, one, host, part);
            canvas.text(1, y, x - 2, "  network", canvas.theme.dim);
            strip::draw(canvas, x, y, w, &parts, away);
        } else {
            canvas.text(1, y, x - 2, &name(&lane, one, marked, x - 2), style);
            let mut of = phases_of(ahead, one, host, part);
            // of a host that is silent it is not known whether it still stands
            let until = frame.look.silent.get(&one.rank.placement.host).copied().unwrap_or(ahead.moment);
            // below what its steps tell
            let open = [run.open_phase(one, until), ahead.open_phase(one.key)].into_iter().flatten();
            of.phases.splice(..0, open.map(|open| segment(open, part)));
            strip::draw(canvas, x, y, w, &of.phases, |column| away(column) || of.unknown.contains(&column));
            shares::draw(canvas, (x, y), &of.shares);
            stalls(canvas, (x, y), &of.stalls);
        }
        y += 1;
    }
    let has_steps = |one: Trainer<'_>| {
        let is_open = run.open_phase(one, ahead.moment).or_else(|| ahead.open_phase(one.key)).is_some();
        is_open || !one.state.steps.is_empty() || !ahead.steps(one.key).is_empty()
    };
    if rank_room > 0
        && !run.trainers().any(has_steps)
        && ahead.history.points.points().iter().all(|point| point.steps == 0)
    {
        let words = if run.is_live() { "no phases reported yet" } else { "no phases reported" };
        canvas.text(x, lanes.y, w, words, canvas.theme.dim);
    }
    let mut y = counters.draw(canvas, y, &shown.slots, part, away);
    let (on_head, covered): (Vec<u16>, Vec<u16>) = marks.into_iter().partition(|x| words.contains(x));
    let times = shown.ruler.then_some(y);
    if shown.ruler {
        ruler::draw(canvas, &model.zone, y, part, &covered);
        y += 1;
    }
    playhead(model, canvas, part, (lanes.y..y, times));
    edges(model, canvas, part, (lanes.y..y, times));
    if lanes.h > 0 {
        ticks(canvas, band.y, &on_head);
        if let Some(y) = times {
            ticks(canvas, y, &covered);
        }
    }
}

/// `rank 3`, `gpu-a ▸ 3` for the host whose rank that is; the rank to look at has a `!`.
fn name(lane: &Lane<'_>, one: Trainer<'_>, marked: bool, room: u16) -> String {
    let mark = if marked { "!" } else { "" };
    match lane {
        Lane::One(_) | Lane::Communication(_) => format!("rank {}{mark}", one.number),
        Lane::Host(host) => {
            let end = format!(" ▸ {}{mark}", one.number);
            let host = units::middle_cut(&sanitize(host.as_str()), room.saturating_sub(width(&end)).into());
            host + &end
        }
    }
}

/// Marks the columns in which the rank itself took far longer than it does.
fn stalls(canvas: &mut Canvas<'_>, (x, y): (u16, u16), columns: &BTreeSet<u16>) {
    let warn = canvas.theme.warn;
    for column in columns {
        canvas.cell(x + column, y).reset();
        canvas.glyph(x + column, y, strip::STALL, warn);
    }
}

/// The column of a moment of the window; the last one is its end.
pub(super) fn column(part: Part, at: Stamp) -> Option<u16> {
    let since = at.micros_since(part.start);
    let share = since as f64 / part.window.max(1) as f64;
    let is_shown = (0..=part.window).contains(&since) && part.w > 0;
    is_shown.then(|| part.x + (share * f64::from(part.w - 1)).round() as u16)
}

/// Where a replay stands, unless that is the end of the lanes.
fn playhead(model: &Model, canvas: &mut Canvas<'_>, part: Part, rows: (Range<u16>, Option<u16>)) {
    let Mode::Replay(state) = &model.mode else { return };
    let Some(x) = column(part, state.playhead).filter(|x| x + 1 < part.x + part.w) else { return };
    let strong = canvas.theme.strong();
    line(canvas, x, rows, ('│', strong));
}

/// Draws a line down the lanes; on the row of times, if it is one of them, beside the times alone.
fn line(
    canvas: &mut Canvas<'_>,
    x: u16,
    (rows, times): (Range<u16>, Option<u16>),
    (glyph, style): (char, Style),
) {
    for y in rows {
        if times != Some(y) || ruler::is_free(canvas, (x, y)) {
            canvas.glyph(x, y, glyph, style);
        }
    }
}

/// The first and the last moment of the selection, where the window has them; the last column is the end of the window.
fn edges(model: &Model, canvas: &mut Canvas<'_>, part: Part, (rows, times): (Range<u16>, Option<u16>)) {
    let Some((from, to)) = selected(model) else { return };
    let accent = canvas.theme.accent.add_modifier(Modifier::BOLD);
    for x in [from, to].into_iter().filter_map(|at| column(part, at)) {
        line(canvas, x, (rows.clone(), times), ('┃', accent));
    }
}

/// The columns of the marks in the window.
fn mark_columns(model: &Model, part: Part) -> impl Iterator<Item = u16> {
    shown_marks(model).iter().filter_map(move |mark| column(part, mark.at))
}

/// Draws marks on a row.
fn ticks(canvas: &mut Canvas<'_>, y: u16, columns: &[u16]) {
    let accent = canvas.theme.accent.add_modifier(Modifier::BOLD);
    for x in columns {
        canvas.glyph(*x, y, strip::MARK, accent);
    }
}

/// Whether the newest steps in the window show that two hosts' clocks are apart: then their lanes do not fit together.
fn clocks_apart(frame: &Frame<'_>) -> Option<ClocksApart> {
    let (run, hosts, (from, to)) = (frame.run, &frame.hosts, frame.timeline);
    if hosts.len() < 2 {
        return None;
    }
    let mut passages: Vec<(u64, Passage)> = Vec::new();
    let mut count = 0;
    // what holds for all holds for some of them
    let each = trainer_lanes(run).count().div_ceil(CLOCK_RANKS).max(1);
    for one in trainer_lanes(run).step_by(each) {
        // what hooks tell of a wait may begin after the rank has come
        if one.state.steps_by == StepsBy::Hooks {
            return None;
        }
        count += 1;
        let host = &one.rank.placement.host;
        let place = hosts.iter().position(|other| other == host)?;
        let clock = &frame.model.world.hosts.get(host)?.clock;
        let before = passages.len();
        let newest = one.state.steps.iter().rev().skip_while(|(arrived, _)| *arrived > to);
        for (_, step) in newest.take_while(|(arrived, _)| *arrived > from).take(clock_check::WINDOW) {
            // one that no ping is near to tells nothing
            let Some(unsure_us) = clock.unsure_us(step.start) else { continue };
            let start = clock.stamp(step.start)?;
            let passage = Passage::new(place, unsure_us, start, step);
            passages.extend(passage.map(|passage| (step.step, passage)));
        }
        // only what all of them tell is looked at
        if passages.len() == before {
            return None;
        }
    }
    // by step, in the order of the ranks
    passages.sort_by_key(|(step, _)| *step);
    let mut check = ClockCheck::default();
    for step in passages.chunk_by(|(one, _), (other, _)| one == other).filter(|step| step.len() == count) {
        let ranks: Vec<Passage> = step.iter().map(|(_, passage)| *passage).collect();
        check.take(&ranks);
    }
    check.apart()?.named(hosts)
}

/// By the pings of which time the clocks are known here; the report's are those of the whole run.
const CLOCK_TIME: &str = " (10 min)";

/// How sure the clocks of the run's hosts are, or that they are apart.
fn clock_words(frame: &Frame<'_>, apart: Option<&ClocksApart>) -> String {
    if let Some(apart) = apart {
        return format!("   clocks ≥ {} apart", units::duration_us(apart.us));
    }
    let clock = |host| frame.model.clock_unsure_us(host, &frame.run.spec);
    // 0 is no ping: an imported run whose ranks are told by one clock
    let most = frame.hosts.iter().filter_map(clock).max().filter(|us| *us > 0);
    most.map_or_else(String::new, |us| format!("   clock ±{:.2} ms{CLOCK_TIME}", f64::from(us) / 1000.0))
}

/// How sure the clock of each host is: of a few hosts, where they are not all the same one.
fn clocks_of_each(frame: &Frame<'_>) -> Option<String> {
    let hosts = &frame.hosts;
    if !(2..=MOST_CLOCKS).contains(&hosts.len()) {
        return None;
    }
    let clock = |host: &HostId| {
        let us = frame.model.clock_unsure_us(host, &frame.run.spec).filter(|us| *us > 0)?;
        Some((units::middle_cut(&sanitize(host.as_str()), 14), format!("±{:.2}", f64::from(us) / 1000.0)))
    };
    let each: Vec<(String, String)> = hosts.iter().filter_map(clock).collect();
    let differ = each.windows(2).any(|pair| pair[0].1 != pair[1].1);
    let words: Vec<String> = each.into_iter().map(|(host, unsure)| format!("{host} {unsure}")).collect();
    differ.then(|| format!("   clock {} ms{CLOCK_TIME}", words.join(", ")))
}

/// Draws the ruler, which says too how many ranks and slots have no lane, and at the right what the lanes of slots are; gives the
/// columns between its words and those at the right. Marks have more room where it does not say how to zoom.
fn head(
    frame: &Frame<'_>,
    canvas: &mut Canvas<'_>,
    (y, has_marks): (u16, bool),
    (apart, hidden, note): (Option<ClocksApart>, [Option<String>; 2], Option<&str>),
) -> Range<u16> {
    let (model, (start, end)) = (frame.model, frame.timeline);
    let (text, dim) = (canvas.theme.text, canvas.theme.dim);
    let clock = clock_words(frame, apart.as_ref());
    let of_each = clocks_of_each(frame).filter(|_| apart.is_none());
    let clock_style = if apart.is_some() { canvas.theme.warn } else { dim };
    let length = units::duration_us(end.micros_since(start).unsigned_abs());
    let bounds = match &model.mode {
        Mode::Replay(state) if state.playhead < end => {
            format!("   {length} from {}", clock_time(start, &model.zone, true))
        }
        _ => format!("   {length} until {}", clock_time(end, &model.zone, true)),
    };
    let spans = unattended(model, frame.run);
    let mut shown = spans.iter().filter(|span| is_away(&[**span], start, end));
    let away = shown.next().map_or_else(String::new, |(from, to)| {
        let long = units::duration_us(u64::try_from(to.micros_since(*from)).unwrap_or(0));
        format!("   {} {} {long}", strip::AWAY, away_words(model))
    });
    let zoom = if has_marks { String::new() } else { "   + - zoom".to_owned() };
    // where there is little room, what is missing is told before how sure the clocks are
    let mut room = canvas.width().saturating_sub(LEAST_RULE);
    let mut words = vec![("timeline".to_owned(), text), (bounds, dim)];
    room = words.iter().fold(room, |room, (word, _)| room.saturating_sub(width(word)));
    let [ranks, slots] = hidden.map(Option::unwrap_or_default);
    for (word, other, style) in [
        (away, None, canvas.theme.warn),
        (ranks, None, dim),
        (slots, None, dim),
        (clock, of_each, clock_style),
        (zoom, None, dim),
    ] {
        let word = other.filter(|other| width(other) <= room).unwrap_or(word);
        if width(&word) <= room {
            room -= width(&word);
            words.push((word, style));
        }
    }
    canvas.rule(y, &words);
    let used = words.iter().fold(LEAST_RULE, |columns, (word, _)| columns + width(word));
    let note = note.map_or_else(String::new, |note| format!(" {note} "));
    let at = canvas.width().saturating_sub(width(&note) + 1);
    if note.is_empty() || at <= used {
        return used..u16::MAX;
    }
    canvas.text(at, y, width(&note), &note, dim);
    used..at
}

/// Where the lanes are, and the window that they show.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) x: u16,
    pub(super) w: u16,
    pub(super) start: Stamp,
    pub(super) window: i64,
}

impl Part {
    /// Where a column begins.
    pub(super) fn moment(&self, column: u16) -> Stamp {
        self.start.plus_micros(self.window.saturating_mul(column.into()) / i64::from(self.w.max(1)))
    }
}

/// A step, and where in the window it lies by the client's clock: 0..=1.
pub(super) type Placed<'a> = (f64, f64, &'a StepTiming);

/// What is known of the time around the moment shown, beside the run as it was then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead<'a> {
    /// What a replay has read after its playhead.
    after: Option<&'a TimelineAhead>,
    /// Until when the run itself tells.
    pub(super) moment: Stamp,
    /// The whole run, in short.
    pub(super) history: &'a RunHistory,
    /// Until when that tells.
    pub(super) until: Stamp,
    /// From when to when that tells nothing, though something is recorded.
    unread: Option<(Stamp, Stamp)>,
    /// What was read of a part of it from the recording.
    near: Option<&'a PhaseWindow>,
    /// When no client followed the run: what is known of that time was told later.
    unattended: &'a [(Stamp, Stamp)],
}

impl<'a> Ahead<'a> {
    fn of(frame: &Frame<'a>) -> Self {
        let (model, history, (_, end)) = (frame.model, frame.history, frame.timeline);
        let Mode::Replay(state) = &model.mode else {
            let (until, unattended) = (end, unattended(model, frame.run));
            let near = near::window(model, frame.run);
            return Self { after: None, moment: end, history, until, unread: None, near, unattended };
        };
        let after = model.ui.replay.timeline_ahead.as_deref();
        let after = after.filter(|after| after.until > state.playhead);
        let known_until = whole::known_until(model, frame.run);
        let unread = known_until.map(|until| (until, state.end));
        let until = known_until.unwrap_or(state.end);
        let (near, moment) = (model.ui.replay.phase_window.as_deref(), state.playhead);
        Self { after, moment, history, until, unread, near, unattended: &state.unattended }
    }

    /// What tells of one that trains in points of about a column's length, where it does.
    fn near(&self, one: Trainer<'_>) -> Option<&'a PhaseWindow> {
        self.near.filter(|near| near.has(one.id()))
    }

    /// Whether that tells of this time.
    fn is_near(&self, (from, to): (Stamp, Stamp)) -> bool {
        self.near.is_some_and(|near| near.part().covers(from, to)) && !is_away(self.unattended, from, to)
    }

    /// The collectives of NCCL that one has told, as far as is read ahead.
    pub(super) fn collectives(&self, number: Rank) -> &'a [(HostTime, u32)] {
        self.after.map_or(&[], |after| after.collectives(number))
    }

    /// The steps that one tells after the moment.
    pub(super) fn steps(&self, number: Rank) -> &'a [Arrived] {
        self.after.map_or(&[], |after| after.steps(number, self.moment))
    }

    /// The phase in which one stands at the end of what is known after the moment.
    fn open_phase(&self, number: Rank) -> Option<(Phase, Stamp, Stamp)> {
        self.after.and_then(|after| after.open_phase(number))
    }

    /// The samples that a host tells after the moment.
    pub(super) fn samples(&self, host: &HostId) -> &'a [PastSample] {
        self.after.map_or(&[], |after| after.samples(host, self.moment))
    }

    /// Between which moments after the one that is shown all is known.
    pub(super) fn known(&self) -> Option<(Stamp, Stamp)> {
        self.after.map(|after| (after.after.max(self.moment), after.until))
    }
}

/// Those of the steps that lie in the window.
pub(super) fn placed<'a>(
    steps: impl Iterator<Item = &'a Arrived>,
    host: Option<&HostState>,
    part: Part,
) -> Vec<Placed<'a>> {
    let share = |at: Stamp| at.micros_since(part.start) as f64 / part.window as f64;
    let placed = steps.map(|(arrived, step)| {
        let begin = host
            .and_then(|host| host.clock.stamp(step.start))
            .unwrap_or_else(|| arrived.plus_micros(-i64::from(step.dur_us)));
        (share(begin), share(begin.plus_micros(i64::from(step.dur_us))), step)
    });
    placed.skip_while(|(_, to, _)| *to < 0.0).take_while(|(from, ..)| *from < 1.0).collect()
}

/// What the lane of a rank shows.
#[derive(Debug, Default)]
struct OfRank {
    /// Steps that are long enough to be seen.
    phases: Vec<Segment>,
    /// Of each column what the phases took where single steps can't be seen.
    shares: Vec<Totals>,
    /// Columns of which nothing is held.
    unknown: BTreeSet<u16>,
    /// Columns in which it took far longer than it does, where single steps can't be seen.
    stalls: BTreeSet<u16>,
}

/// What a lane shows: each phase where it was. Where steps are shorter than a column, and in columns of which the steps are not
/// held, the share of each. Beside them the columns of which nothing is held, and those of stalls.
fn phases_of(ahead: Ahead<'_>, one: Trainer<'_>, host: Option<&HostState>, part: Part) -> OfRank {
    let (steps, w) = (&one.state.steps, part.w);
    // the others are over before it begins
    let held = placed(steps.after(part.start.plus_micros(-EARLY_US)), host, part);
    let later = placed(ahead.steps(one.key).iter(), host, part);
    let is_short = |(from, to, _): &Placed<'_>| (to - from) * f64::from(w) < 1.0;
    let all = held.iter().chain(&later).copied();
    let (short, long): (Vec<Placed<'_>>, Vec<Placed<'_>>) = all.partition(|one| is_short(one));
    let stalls_from = ahead.history.stalls_from(one.key);
    let is_stall = |column: u16, own_us: u32| {
        stalls_from.is_some_and(|(since, us)| part.moment(column) >= since && f64::from(own_us) > us)
    };
    let ends_in = |to: f64| (to * f64::from(w)).clamp(0.0, f64::from(w.max(1) - 1)) as u16;
    let short_own = short.iter().map(|(_, to, step)| (ends_in(*to), step.own_us()));
    let mut stalls: BTreeSet<u16> =
        short_own.filter(|(at, own)| is_stall(*at, *own)).map(|(at, _)| at).collect();
    let mut shares = totals(&short, w);
    leave_to(&long, &mut shares);
    let share = |at: Stamp| at.micros_since(part.start) as f64 / part.window as f64;
    // from the first step that is still held on, and as far as was read ahead, a column without a step has none
    let is_cut = one.state.step_count > steps.len() as u64;
    let first = steps.front().filter(|_| is_cut).map(|(arrived, oldest)| {
        let begin = share(arrived.plus_micros(-i64::from(oldest.dur_us)));
        held.first().map_or(begin, |(first, ..)| first.min(begin))
    });
    let known = [
        Some((first.unwrap_or(f64::NEG_INFINITY), share(ahead.moment))),
        ahead.known().map(|(from, to)| (share(from), share(to))),
    ];
    let is_known = |column: u16| {
        let (left, right) = (f64::from(column) / f64::from(w), f64::from(column + 1) / f64::from(w));
        known.iter().flatten().any(|(from, to)| left < *to && right > *from)
    };
    let others: Vec<u16> = (0..w).filter(|column| !is_known(*column)).collect();
    let times = |column: &u16| (part.moment(*column), part.moment(*column + 1));
    let near = ahead.near(one);
    let is_near = |column: &u16| near.is_some() && ahead.is_near(times(column));
    let (closely, coarsely): (Vec<u16>, Vec<u16>) = others.iter().copied().partition(is_near);
    let mut told = ahead.history.phases_in_each(one.key, coarsely.iter().map(times));
    let mut told_closely = near.map(|near| near.phases_in_each(one.id(), closely.iter().map(times)));
    let mut unknown = BTreeSet::new();
    for column in others {
        let (from, is_near) = (part.moment(column), is_near(&column));
        let point = if is_near { told_closely.as_mut().and_then(Iterator::next) } else { told.next() };
        match point.flatten() {
            Some(point) => {
                if point.phases != [0; Phase::COUNT] {
                    shares[usize::from(column)] = point.phases.map(u64::from);
                }
                stalls.extend(is_stall(column, point.longest_own_us).then_some(column));
            }
            None if is_near => {
                let to = part.moment(column + 1);
                let lacks = near.is_some_and(|near| near.is_left_out(one.id(), from, to));
                unknown.extend(lacks.then_some(column));
            }
            None if ahead.unread.is_some_and(|(read, end)| read <= from && from < end) => {
                unknown.insert(column);
            }
            // of very many ranks it is not kept, so before the steps that are held nothing is known since the run began
            None if is_cut && !ahead.history.has_phases(one.key) => {
                unknown.extend((from >= ahead.history.points.start()).then_some(column));
            }
            None => {}
        }
    }
    OfRank { phases: phases(&long, part.window), shares, unknown, stalls }
}

/// A phase where it was.
fn segment((phase, from, to): (Phase, Stamp, Stamp), part: Part) -> Segment {
    let share = |at: Stamp| at.micros_since(part.start) as f64 / part.window.max(1) as f64;
    Segment { phase, from: share(from), to: share(to) }
}

/// Each phase of the steps where it was.
fn phases(held: &[Placed<'_>], window: i64) -> Vec<Segment> {
    let each = held.iter().flat_map(|(begin, _, step)| {
        step.spans.iter().map(move |span| {
            let from = begin + f64::from(span.start_us) / window as f64;
            Segment { phase: span.phase, from, to: from + f64::from(span.dur_us) / window as f64 }
        })
    });
    each.filter(|one| one.to > 0.0 && one.from < 1.0).collect()
}

/// What the phases took of the steps that ended in each column: whole steps, so that even ones look even.
fn totals(held: &[Placed<'_>], w: u16) -> Vec<Totals> {
    let mut columns = vec![[0; Phase::COUNT]; usize::from(w)];
    for (from, to, step) in held.iter().filter(|_| w > 0) {
        let column = |at: f64| (at * f64::from(w)).clamp(0.0, f64::from(w - 1)) as usize;
        let totals = step.phase_totals();
        let mut add = |at: usize| columns[at].iter_mut().zip(totals).for_each(|(own, us)| *own += us);
        add(column(*to));
        // it reaches into the column before: one in which no step ends is like it
        if column(*from) < column(*to) && columns[column(*from)] == [0; Phase::COUNT] {
            columns[column(*from)] = totals;
        }
    }
    columns
}

/// Columns whose middle lies in a step that can be seen show that step.
fn leave_to(long: &[Placed<'_>], columns: &mut [Totals]) {
    let count = columns.len();
    for (from, to, _) in long {
        let first_behind = |at: f64| (at * count as f64 - 0.5).ceil().clamp(0.0, count as f64) as usize;
        columns[first_behind(*from)..first_behind(*to)].fill([0; Phase::COUNT]);
    }
}

/// Whether no client followed the run in any part of what lies between two moments.
fn is_away(spans: &[(Stamp, Stamp)], left: Stamp, right: Stamp) -> bool {
    spans.iter().any(|(from, to)| *from < right && left < *to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::step_timing;
    use crate::domain::timing::PhaseSpan;

    fn step(spans: &[(Phase, u32)]) -> StepTiming {
        let span = |(phase, dur_us): &(Phase, u32)| PhaseSpan { phase: *phase, start_us: 0, dur_us: *dur_us };
        StepTiming { spans: spans.iter().map(span).collect(), ..step_timing(1, 100) }
    }

    #[test]
    fn where_steps_are_short_a_column_has_all_phases_of_those_that_end_there() {
        let usual = step(&[(Phase::Data, 10), (Phase::Forward, 30), (Phase::Backward, 60)]);
        let late = step(&[(Phase::Forward, 30), (Phase::Wait, 90)]);
        let held = [(0.3, 0.55, &usual), (0.55, 0.74, &usual), (0.76, 0.97, &late)];
        let both = [20, 60, 120, 0, 0, 0, 0];
        let like_it = [10, 30, 60, 0, 0, 0, 0];
        assert_eq!(totals(&held, 4), [[0; Phase::COUNT], like_it, both, [0, 30, 0, 90, 0, 0, 0]]);
        assert_eq!(totals(&held, 0), [[0; Phase::COUNT]; 0]);
    }

    #[test]
    fn a_step_that_can_be_seen_stands_where_short_ones_have_less_than_half_of_a_column() {
        let usual = step(&[(Phase::Forward, 30)]);
        let left = |from, to| {
            let mut columns = vec![[7; Phase::COUNT]; 4];
            leave_to(&[(from, to, &usual)], &mut columns);
            columns.iter().map(|column| column[0] > 0).collect::<Vec<_>>()
        };
        assert_eq!(left(0.2, 0.6), [true, false, true, true]);
        assert_eq!(left(0.1, 0.65), [false, false, false, true]);
        assert_eq!(left(-1.0, 0.1), [true; 4]);
        assert_eq!(left(-1.0, 2.0), [false; 4]);
    }
}
