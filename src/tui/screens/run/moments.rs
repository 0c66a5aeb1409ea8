//! What a search finds in a replay: lines of the log, marks, stages of the run, and phases of a rank's steps. The playhead goes
//! to each.
//!
//! Lines, marks and stages are gone through together in the order of time. Every step has the same phases, so these are looked
//! at where nothing else has what is searched.

use super::rows::selected_rank;
use super::{LogAt, log, marks, whole};
use crate::domain::ids::Rank;
use crate::domain::log_text::search::Pattern;
use crate::domain::playback::{FoundLine, LineSearch};
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;
use crate::domain::world::RunState;
use crate::tui::core::{Effect, Level, PlayCommand};
use crate::tui::screens::{Model, replay};

/// Phases that are gone through at most.
const MOST: usize = 10_000;

/// The state of the search beside the log's.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MomentsUi {
    /// The moment that the search has come to.
    on: Option<(Stamp, String)>,
    /// The phases that were found: a playhead that goes back to one must not lose those behind it.
    phases: Option<Phases>,
    /// Of what is searched in all of the recording: whether forward, until that is answered.
    asked: Option<bool>,
    /// The line that was found there, until the playhead has come to it.
    landed: Option<FoundLine>,
    /// In this direction the recording has no more of it.
    exhausted: Option<bool>,
    /// What is said of the search until there is more to say: that the recording is looked through, or that it has nothing.
    said: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Phases {
    pattern: String,
    /// Up to when steps were looked at.
    until: Stamp,
    found: Vec<(Stamp, String)>,
}

/// Something that has what is searched.
#[derive(Debug, Clone, PartialEq)]
enum Hit {
    /// The row of this line of the log.
    Line(Stamp, u64),
    /// A moment, in words.
    Moment(Stamp, String),
}

impl Hit {
    fn at(&self) -> Stamp {
        match self {
            Self::Line(at, _) | Self::Moment(at, _) => *at,
        }
    }
}

/// Goes to the next match, or to the one before; from the last one to the first. The newest one comes first.
pub(super) fn find(model: &mut Model, forward: bool, height: usize) -> Vec<Effect> {
    let Some(pattern) = model.ui.run.log.pattern.clone() else { return Vec::new() };
    log::look_again(model);
    let (hits, of_steps) = hits(model, &pattern);
    let exhausted = model.ui.run.moments.exhausted.take();
    let Some(last) = hits.len().checked_sub(1) else {
        if exhausted.is_none()
            && let Some(effect) = beyond(model, &pattern, Stretch::All)
        {
            return vec![effect];
        }
        model.ui.run.log.found = None;
        let (of, more) = match model.ui.run.log_rank {
            Some(rank) => (format!(" of rank {rank}"), ": A shows the lines of all ranks"),
            None => (String::new(), ""),
        };
        let text = format!("no line{of}, mark, stage or phase has {}{more}", pattern.source());
        model.ui.run.moments.said = Some(text.clone());
        model.notice(Level::Info, text);
        return Vec::new();
    };
    let on = position(model, &hits);
    if !of_steps
        && exhausted != Some(forward)
        && let Some(stretch) = unread(&hits, on, forward)
        && let Some(effect) = beyond(model, &pattern, stretch)
    {
        return vec![effect];
    }
    let to = match on {
        None => last,
        Some(on) if forward => {
            if on < last {
                on + 1
            } else {
                0
            }
        }
        Some(on) => on.checked_sub(1).unwrap_or(last),
    };
    model.ui.run.moments.landed = None;
    match &hits[to] {
        Hit::Line(at, line) => {
            model.ui.run.moments.on = None;
            if replay::state(model).is_some_and(|state| state.playhead == *at) {
                if let Some(to) = log::behind(model, *at, *line) {
                    let ui = &mut model.ui.run;
                    (ui.log.found, ui.log_at) = (Some(*line), LogAt::Follow);
                    return vec![Effect::Play(to)];
                }
                log::come_to(model, *line, height);
                return Vec::new();
            }
            // the log goes with the playhead
            let ui = &mut model.ui.run;
            (ui.log.found, ui.log_at) = (Some(*line), LogAt::Follow);
            vec![Effect::Play(PlayCommand::SeekTo(*at))]
        }
        Hit::Moment(at, words) => {
            model.ui.run.log.found = None;
            model.ui.run.moments.on = Some((*at, words.clone()));
            model.toast(Level::Info, format!("match {} of {}: {words}", to + 1, hits.len()), None);
            vec![Effect::Play(PlayCommand::SeekTo(*at))]
        }
    }
}

/// Other lines are shown now, or looked for: what was said of the search before is said no longer.
pub(super) fn look_again(model: &mut Model) {
    if let Some(said) = model.ui.run.moments.said.take() {
        model.ui.toasts.retain(|toast| toast.text != said);
    }
}

/// Which of them the search has come to.
fn position(model: &Model, hits: &[Hit]) -> Option<usize> {
    let ui = &model.ui.run;
    let is_on = |hit: &Hit| match hit {
        Hit::Line(_, line) => ui.log.found == Some(*line),
        Hit::Moment(at, words) => ui.moments.on.as_ref().is_some_and(|on| (on.0, &on.1) == (*at, words)),
    };
    // a line that was found beyond those in memory is in a row of them now, which may have begun before
    let is_there =
        |landed: &&FoundLine| replay::state(model).is_some_and(|state| state.playhead == landed.at);
    let landed = ui.moments.landed.as_ref().filter(is_there);
    let number = landed.and_then(|landed| log::number_of(model, landed));
    let is_landed = |hit: &Hit| match hit {
        Hit::Line(at, line) => {
            number.map_or_else(|| landed.is_some_and(|landed| *at <= landed.at), |number| *line <= number)
        }
        Hit::Moment(..) => false,
    };
    hits.iter().position(is_on).or_else(|| hits.iter().rposition(is_landed))
}

/// The playhead has come to a line that was found: the search stands on its row, and that is seen. The lines of a glimpse have numbers
/// of their own, so the search waits for what replaces it.
pub(in crate::tui::screens) fn arrive(model: &mut Model) {
    let ui = &model.ui.run;
    let Some(landed) = ui.moments.landed.as_ref().filter(|_| ui.log.found.is_none()) else { return };
    if model.ui.replay.is_glimpse || replay::state(model).is_none_or(|state| state.playhead != landed.at) {
        return;
    }
    let Some(number) = log::number_of(model, landed) else { return };
    let row = log::found_rows(ui).iter().rev().find(|(first, _)| *first <= number);
    let Some(row) = row.map(|(first, _)| *first) else { return };
    model.ui.run.moments.landed = None;
    let height = usize::from(super::bands(model).logs.below_head().h);
    log::come_to(model, row, height);
}

/// What of the recording lies between a match and the next one that is known, where no further line is known in that direction.
fn unread(hits: &[Hit], on: Option<usize>, forward: bool) -> Option<Stretch> {
    let on = on?;
    let (before, after) = (&hits[..on], &hits[on + 1..]);
    let (ahead, next) = if forward { (after, after.first()) } else { (before, before.last()) };
    let (at, to) = (hits[on].at(), next.map(Hit::at));
    let is_known = ahead.iter().any(|hit| matches!(hit, Hit::Line(..)));
    (!is_known).then_some(if forward { Stretch::After(at, to) } else { Stretch::Before(at, to) })
}

/// A part of a recording.
#[derive(Clone, Copy)]
enum Stretch {
    All,
    /// From a moment on, up to another one.
    After(Stamp, Option<Stamp>),
    /// Before a moment, back to another one.
    Before(Stamp, Option<Stamp>),
}

/// Has a part of a recording looked through, beyond the lines in memory.
fn beyond(model: &mut Model, pattern: &Pattern, stretch: Stretch) -> Option<Effect> {
    let playhead = replay::state(model)?.playhead;
    let (forward, from, to, turns) = match stretch {
        Stretch::All => (false, playhead, None, true),
        Stretch::After(at, to) => (true, at.max(playhead), to, false),
        Stretch::Before(at, to) => (false, at.min(playhead), to, false),
    };
    // the playhead may stand amid its moment; what lies before a match of that moment is in memory
    let is_of_playhead = from == playhead && (forward || turns);
    let seen = model.world.last_seq.filter(|_| is_of_playhead);
    let ui = &mut model.ui.run;
    ui.moments.asked = Some(forward);
    let (rank, least) = (ui.log_rank, ui.log.least.level());
    let search = LineSearch { pattern: pattern.clone(), rank, least, forward, from, seen, to, turns };
    let text = format!("looking through the recording for {} …", pattern.source());
    ui.moments.said = Some(text.clone());
    model.toast(Level::Info, text, None);
    Some(Effect::FindLine(Box::new(search)))
}

/// The recording was looked through: the playhead goes to the line, or there is none and the next of what is known is gone to.
/// What comes when the search has ended moves nothing.
pub(in crate::tui::screens) fn line_found(model: &mut Model, line: Option<FoundLine>) -> Vec<Effect> {
    let Some(forward) = model.ui.run.moments.asked.take() else { return Vec::new() };
    look_again(model);
    if let Some(line) = line {
        let (ui, at) = (&mut model.ui.run, line.at);
        (ui.log.found, ui.log_at, ui.moments.on) = (None, LogAt::Follow, None);
        ui.moments.landed = Some(line);
        return vec![Effect::Play(PlayCommand::SeekTo(at))];
    }
    model.ui.run.moments.exhausted = Some(forward);
    let height = usize::from(super::bands(model).logs.below_head().h);
    find(model, forward, height)
}

/// All that has it, in the order of time; and whether that is of the steps alone.
fn hits(model: &mut Model, pattern: &Pattern) -> (Vec<Hit>, bool) {
    let Some((_, run)) = model.shown_run() else { return (Vec::new(), false) };
    let lines = log::found_rows(&model.ui.run).iter().map(|(line, at)| Hit::Line(*at, *line));
    let marks = marks::shown(model).iter().map(|mark| (mark.at, format!("mark: {}", mark.words())));
    let stages = whole::stages(model, run).iter().map(|(at, stage)| (*at, format!("stage {}", stage.name())));
    let moments = marks.chain(stages).filter(|(_, words)| pattern.is_in(words));
    let mut hits: Vec<Hit> = lines.chain(moments.map(|(at, words)| Hit::Moment(at, words))).collect();
    let of_steps = hits.is_empty();
    if of_steps {
        let phases = phases(model, pattern).into_iter();
        hits = phases.map(|(at, words)| Hit::Moment(at, words)).collect();
    }
    hits.sort_by_key(Hit::at);
    (hits, of_steps)
}

/// The phases that have it, of the selected rank, as far as the replay keeps steps or had them at the search before.
fn phases(model: &mut Model, pattern: &Pattern) -> Vec<(Stamp, String)> {
    let Some(playhead) = replay::state(model).map(|state| state.playhead) else { return Vec::new() };
    let known = model.ui.run.moments.phases.as_ref();
    let known = known.filter(|known| known.pattern == pattern.source() && known.until >= playhead);
    if let Some(known) = known {
        return known.found.clone();
    }
    let found = model.shown_run().map_or_else(Vec::new, |(_, run)| phases_of(model, run, pattern));
    let phases = Phases { pattern: pattern.source().to_owned(), until: playhead, found: found.clone() };
    model.ui.run.moments.phases = Some(phases);
    found
}

fn phases_of(model: &Model, run: &RunState, pattern: &Pattern) -> Vec<(Stamp, String)> {
    let wanted: Vec<Phase> = Phase::ALL.into_iter().filter(|phase| pattern.is_in(words_of(*phase))).collect();
    let number = selected_rank(model).unwrap_or(Rank(0));
    let Some(one) = run.trainers_in(number).next().or_else(|| run.trainers().next()) else {
        return Vec::new();
    };
    let host = model.world.hosts.get(&one.rank.placement.host);
    let mut found = Vec::new();
    for (arrived, step) in one.state.steps.iter().rev() {
        let begin = host
            .and_then(|host| host.clock.stamp(step.start))
            .unwrap_or_else(|| arrived.plus_micros(-i64::from(step.dur_us)));
        for span in step.spans.iter().filter(|span| wanted.contains(&span.phase)) {
            let words = format!("{}, rank {}, step {}", words_of(span.phase), one.number, step.step);
            found.push((begin.plus_micros(i64::from(span.start_us)), words));
        }
        if found.len() >= MOST {
            break;
        }
    }
    found
}

/// How a phase is called, with what it is a part of.
fn words_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Wait => "allreduce wait",
        Phase::Transfer => "allreduce transfer",
        other => other.name(),
    }
}
