//! Which rank a run failed by: that of the first exit, unless what the ranks printed says that it only lost another one. Pure.
//! The rule is in `docs/guide/runs.md`.

use serde::{Deserialize, Serialize};

use super::blame;
use super::ids::{HostId, Rank};
use super::last_words::{self, LastWords};
use super::log_text::level::Level;
use super::run::RankExit;
use super::time::Stamp;
use super::units::short_duration_us;

/// So long after the first exit the exit of the rank that is its cause may come, and so long before it may lie an error of another
/// rank that is its cause, microseconds.
const WITHIN_US: i64 = 10_000_000;
/// Lines reach a client so much later than they were printed: what lies closer together has no order, microseconds.
const UNSURE_US: i64 = 300_000;
/// What two ranks printed on their own is ordered from this on, microseconds.
const ORDERED_US: i64 = 50_000;
/// How long ranks have to end by themselves after one has failed, before they are told to stop, microseconds: the rank that is the
/// cause may need longer to end than those that have lost it.
pub const SETTLE_US: u64 = 1_000_000;
const SIGPIPE: i32 = 13;
/// What no other rank's end does to a rank: SIGILL, SIGBUS, SIGFPE, SIGKILL, SIGSEGV. SIGABRT is not among them: libraries abort when
/// they have lost a peer.
const OWN_SIGNALS: [i32; 5] = [4, 7, 8, 9, 11];

/// How a rank ended, and what it printed before.
#[derive(Debug, Clone, Copy)]
pub struct RankEnd<'a> {
    /// Which.
    pub rank: Rank,
    /// When and how; `None` while it runs.
    pub exit: Option<(Stamp, &'a RankExit)>,
    /// What it printed.
    pub words: Option<&'a LastWords>,
    /// Whose clock told when it ended, and by how much that may be off, microseconds; `None` where that is not known.
    pub clock: Option<(&'a HostId, u32)>,
}

impl RankEnd<'_> {
    fn failed_at(&self) -> Option<Stamp> {
        let (at, exit) = self.exit?;
        (exit.shell_code() != 0 && !exit.stopped).then_some(at)
    }

    /// Whether it ended because another rank was gone, by its own words.
    fn lost_a_peer(&self) -> bool {
        self.exit.is_some_and(|(at, exit)| {
            exit.signal == Some(SIGPIPE)
                || exit.cause.as_deref().is_some_and(last_words::is_of_lost_peer)
                || self.words.is_some_and(|words| words.is_of_lost_peer(at))
        })
    }

    fn cause_is(&self, kind: impl Fn(&str) -> bool) -> bool {
        self.exit.is_some_and(|(_, exit)| exit.cause.as_deref().is_some_and(kind))
    }

    /// Of ranks whose exits a launcher tells together, the first that it names is the first.
    fn is_told_later(&self) -> bool {
        self.cause_is(|cause| cause == blame::LATER)
    }

    /// Its own error, where a first exit at `first` did not bring it about: a rank that is told to stop may say so as an error.
    fn own_error(&self, first: Stamp) -> Option<&last_words::Printed> {
        let error = self.words.and_then(|words| words.own_error(first))?;
        let ended_by_itself = self.exit.is_some_and(|(_, exit)| !exit.stopped);
        // a launcher tells them at once
        let settle_us = if self.cause_is(blame::is_by_launcher) { 0 } else { SETTLE_US };
        let told_to_stop = first.plus_micros(settle_us.cast_signed());
        (ended_by_itself || error.at < told_to_stop).then_some(error)
    }

    /// Whether its host was started anew: its time is that of the boot or at which it was told, and it ended before.
    fn is_of_reboot(&self) -> bool {
        self.exit.is_some_and(|(_, exit)| exit.is_of_reboot())
    }

    /// Whether how it ended is a reason of its own, whatever others said: what killed it is known, or is no answer to anything.
    fn ended_by_itself(&self) -> bool {
        // an error that it has written down for torchrun is its own word, which has a time as others have
        let is_known = |cause: &str| Level::of(cause) < Level::Error && cause != blame::LATER;
        let killed = self
            .exit
            .is_some_and(|(_, exit)| exit.signal.is_some_and(|signal| OWN_SIGNALS.contains(&signal)));
        self.failed_at().is_some() && !self.lost_a_peer() && (killed || self.cause_is(is_known))
    }
}

/// What is known of the cause beside the rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Evidence {
    /// Ranks whose exit came before its own had only lost another one.
    Lost {
        /// The first of them.
        by: Rank,
        /// The error that it printed, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// The rank printed this error before the others failed; its exit came later than theirs.
    PrintedFirst {
        /// The error.
        text: String,
    },
    /// Another rank printed an error at about the time at which this one failed.
    PrintedToo {
        /// Which.
        rank: Rank,
        /// The error.
        text: String,
    },
    /// Another rank had ended well before.
    EndedBefore {
        /// Which.
        rank: Rank,
        /// The last step that it told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<u64>,
    },
    /// Another rank failed so soon after this one that the clocks of their hosts do not tell which was the first.
    SameTime {
        /// Which.
        rank: Rank,
        /// What both clocks may be off by together, microseconds.
        unsure_us: u32,
    },
    /// Something that a newer version knows.
    #[serde(other)]
    Unknown,
}

impl Evidence {
    /// `rank 1 (n2:0) had ended before (exit 0, at step 40)`, for behind how the root cause ended; `None` where there is nothing to say
    /// there. `name` names a rank with its place.
    pub fn words(&self, name: impl Fn(Rank) -> String) -> Option<String> {
        match self {
            Self::PrintedToo { rank, text } => {
                Some(format!("{} printed an error at about the same time: {text}", name(*rank)))
            }
            Self::EndedBefore { rank, step } => {
                let step = step.map_or_else(String::new, |step| format!(", at step {step}"));
                Some(format!("{} had ended before (exit 0{step})", name(*rank)))
            }
            Self::SameTime { rank, unsure_us } => Some(format!(
                "it or {} failed first: their clocks are known to ±{}",
                name(*rank),
                short_duration_us((*unsure_us).into())
            )),
            Self::Lost { by, .. } => Some(format!("{} ended before it, but had lost a peer", name(*by))),
            Self::PrintedFirst { .. } | Self::Unknown => None,
        }
    }

    /// `failed first: exit 3`, of a root cause that ended as `how` says.
    pub fn headline(evidence: Option<&Self>, how: &str) -> String {
        match evidence {
            Some(Self::PrintedFirst { text }) => format!("printed an error first: {text}; {how}"),
            Some(Self::Lost { text: Some(text), .. }) => format!("failed: {text}; {how}"),
            Some(Self::Lost { text: None, .. } | Self::SameTime { .. }) => format!("failed: {how}"),
            _ => format!("failed first: {how}"),
        }
    }
}

/// The root cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootCause {
    /// The rank by which the run failed.
    pub rank: Rank,
    /// The rank whose exit came first.
    pub first: Rank,
    /// What else is known.
    pub evidence: Option<Evidence>,
}

/// The root cause among ranks whose times are on one clock; `None` where none failed by itself, or none before others were told to
/// stop: where a host could not be reached then, its ranks fail once it can, for want of the others. Where nothing but the time of
/// its exit makes a rank the cause, and clocks are not exact enough for that, the evidence says so.
pub fn of<'a>(ends: &(impl Iterator<Item = RankEnd<'a>> + Clone)) -> Option<RootCause> {
    let cause = by_their_ends(ends)?;
    if cause.rank != cause.first || cause.evidence.is_some() {
        return Some(cause);
    }
    let first = ends.clone().find(|end| end.rank == cause.rank);
    let evidence = first.and_then(|first| same_time(&first, ends.clone()));
    Some(RootCause { evidence, ..cause })
}

/// The rank on another host that failed so soon after the first one that their clocks do not tell which was the first.
fn same_time<'a>(first: &RankEnd<'a>, others: impl Iterator<Item = RankEnd<'a>>) -> Option<Evidence> {
    let (at, _) = first.exit?;
    let (host, own_us) = first.clock?;
    // what a launcher tells is in its own order, and one that never started or was lost was not timed
    let is_timed = |end: &RankEnd<'a>| {
        end.exit.is_some_and(|(_, exit)| exit.error.is_none() && !exit.is_lost()) && !end.is_told_later()
    };
    if !is_timed(first) {
        return None;
    }
    let unsure_us = |end: &RankEnd<'a>| {
        let (_, us) = end.clock.filter(|(other, _)| *other != host)?;
        let apart_us = end.failed_at()?.micros_since(at);
        let unsure_us = own_us.saturating_add(us);
        // one that only lost another one, or that a signal of its own did not end, follows one of which that is not so
        let may_be_first = (first.lost_a_peer() || !end.lost_a_peer())
            && (end.ended_by_itself() || !first.ended_by_itself())
            && is_timed(end);
        (may_be_first && apart_us < i64::from(unsure_us)).then_some(unsure_us)
    };
    let soon = others.filter(|end| unsure_us(end).is_some());
    let next = soon.min_by_key(|end| (end.failed_at(), end.rank))?;
    Some(Evidence::SameTime { rank: next.rank, unsure_us: unsure_us(&next)? })
}

/// The root cause by the order of the exits, and by what the ranks printed.
fn by_their_ends<'a>(ends: &(impl Iterator<Item = RankEnd<'a>> + Clone)) -> Option<RootCause> {
    let failed = |end: &RankEnd<'a>| end.failed_at().map(|at| (at, end.rank));
    let order = |end: &RankEnd<'a>| (end.is_told_later(), failed(end));
    let first = ends.clone().filter(|end| end.failed_at().is_some()).min_by_key(order)?;
    let (at, exit) = first.exit?;
    // a failure tells others to stop after this time, so that clocks that are apart turn nothing round
    let was_stopped = |end: RankEnd<'a>| {
        let ended = end.exit.filter(|(_, exit)| exit.stopped && exit.shell_code() != 0);
        ended.is_some_and(|(when, _)| at.micros_since(when) > SETTLE_US.cast_signed())
    };
    if ends.clone().any(was_stopped) {
        return None;
    }
    let found = |rank, evidence| RootCause { rank, first: first.rank, evidence };
    if exit.error.is_some() || exit.is_lost() {
        return Some(found(first.rank, None));
    }
    let others = || ends.clone().filter(|end| end.rank != first.rank);
    let within = |end: &RankEnd<'a>| {
        end.exit.is_none_or(|(when, exit)| exit.shell_code() != 0 && when.micros_since(at) <= WITHIN_US)
    };
    let own = first.own_error(at);
    let printed = |end: RankEnd<'a>| Some((end.own_error(at)?.clone(), end.rank));
    let printed = || others().filter(within).filter_map(printed);
    let time = |(error, rank): &(last_words::Printed, Rank)| (error.at, *rank);
    if own.is_none() && first.lost_a_peer() {
        let in_time = |end: &RankEnd<'a>| within(end) || end.is_of_reboot();
        let by_itself = others().filter(|end| in_time(end) && end.ended_by_itself()).min_by_key(order);
        // ended without a word, and no other rank is what it lost
        let silent = |end: &RankEnd<'a>| within(end) && !end.lost_a_peer() && end.failed_at().is_some();
        let silent = || others().filter(silent).min_by_key(order);
        let printed = printed().min_by_key(time);
        let ended = by_itself.or_else(|| if printed.is_none() { silent() } else { None });
        let ended = ended.as_ref().and_then(failed);
        return Some(match (printed, ended) {
            (Some((error, rank)), ended) if ended.is_none_or(|(when, _)| error.at < when) => {
                let text = error.text;
                let lost = || Evidence::Lost { by: first.rank, text: Some(text.clone()) };
                let evidence =
                    if error.at <= at { Evidence::PrintedFirst { text: text.clone() } } else { lost() };
                found(rank, Some(evidence))
            }
            (_, Some((_, rank))) => found(rank, Some(Evidence::Lost { by: first.rank, text: None })),
            (_, None) => found(first.rank, ended_before(&first, at, others())),
        });
    }
    // what lies long before it may be one from which the rank recovered; what says the same has the same cause
    let counts = |(error, _): &(last_words::Printed, Rank)| {
        at.micros_since(error.at) <= WITHIN_US && own.is_none_or(|own| !is_alike(&own.text, &error.text))
    };
    let Some((error, rank)) = printed().filter(counts).min_by_key(time) else {
        let is_told = own.is_some() || first.ended_by_itself() || exit.code.is_none();
        let evidence = if is_told { None } else { ended_before(&first, at, others()) };
        return Some(found(first.rank, evidence));
    };
    let before_us = own.map_or(at, |own| own.at).micros_since(error.at);
    let ordered_us = own.map_or(0, |own| own.unsure_us).max(error.unsure_us).max(ORDERED_US);
    let is_first = match own {
        Some(_) => before_us >= ordered_us,
        None => before_us > 0,
    };
    if is_first && !first.ended_by_itself() {
        return Some(found(rank, Some(Evidence::PrintedFirst { text: error.text })));
    }
    let is_close = match own {
        Some(_) => before_us.abs() < ordered_us,
        None => before_us.abs() < UNSURE_US,
    };
    Some(found(first.rank, is_close.then_some(Evidence::PrintedToo { rank, text: error.text })))
}

/// The rank that had ended well before the first failure, where that failed for want of it: it says so, or it came no further than
/// one step more.
fn ended_before<'a>(
    first: &RankEnd<'a>,
    at: Stamp,
    others: impl Iterator<Item = RankEnd<'a>>,
) -> Option<Evidence> {
    let step_of = |end: &RankEnd<'a>| end.words.and_then(LastWords::step);
    let waited = |end: &RankEnd<'a>| {
        let steps = step_of(first).zip(step_of(end));
        first.lost_a_peer() || steps.is_some_and(|(own, its)| own <= its.saturating_add(1))
    };
    let ended_well = |end: &RankEnd<'a>| {
        let (when, exit) = end.exit?;
        let is_well = exit.shell_code() == 0 && !exit.stopped && when < at;
        (is_well && waited(end)).then_some((when, end.rank))
    };
    let before = others.filter(|end| ended_well(end).is_some()).min_by_key(ended_well);
    before.map(|end| Evidence::EndedBefore { rank: end.rank, step: step_of(&end) })
}

/// Whether two ranks say the same but for numbers: then they failed by the same cause.
fn is_alike(a: &str, b: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
    letters(a) == letters(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::run::REBOOTED;
    use crate::domain::time::HostTime;

    /// Lines that a client did not hear when they were printed have the time of the next note.
    #[test]
    fn what_was_noted_once_a_second_is_not_ordered_by_less() {
        let mut run = Run::new(2).prints(1, 400, OOM).prints(0, 900, "ValueError: bad gradient");
        run.0[0].1.is_unsure(1_000_000);
        let too = Some(Evidence::PrintedToo { rank: Rank(1), text: OOM.to_owned() });
        assert_eq!(run.exits(0, 910, 1).exits(1, 950, 3).cause(), (0, 0, too));
    }

    #[derive(Clone)]
    struct Run(Vec<(Option<(Stamp, RankExit)>, LastWords)>);

    impl Run {
        fn new(ranks: usize) -> Self {
            Self(vec![(None, LastWords::default()); ranks])
        }

        fn exits(mut self, rank: usize, ms: i64, code: i32) -> Self {
            let (code, signal) = if code > 128 { (None, Some(code - 128)) } else { (Some(code), None) };
            let stopped = signal == Some(15);
            let exit = RankExit { code, signal, t: HostTime(0), error: None, stopped, cause: None };
            self.0[rank].0 = Some((Stamp(ms * 1000), exit));
            self
        }

        fn prints(mut self, rank: usize, ms: i64, text: &str) -> Self {
            self.0[rank].1.line(Stamp(ms * 1000), Level::of(text), false, text);
            self
        }

        fn steps(mut self, rank: usize, step: u64) -> Self {
            self.0[rank].1.stepped(Stamp(0), step);
            self
        }

        fn cause(&self) -> (u32, u32, Option<Evidence>) {
            self.cause_by(&[])
        }

        /// The same where ranks are on these hosts, and their clocks known to so many microseconds.
        fn cause_by(&self, clocks: &[(HostId, u32)]) -> (u32, u32, Option<Evidence>) {
            let ends = self.0.iter().zip(0..).map(|((exit, words), rank)| RankEnd {
                rank: Rank(rank),
                exit: exit.as_ref().map(|(at, exit)| (*at, exit)),
                words: Some(words),
                clock: clocks.get(rank as usize).map(|(host, us)| (host, *us)),
            });
            let cause = of(&ends).unwrap();
            (cause.rank.0, cause.first.0, cause.evidence)
        }
    }

    const OOM: &str = "RuntimeError: CUDA error: out of memory";

    fn printed(text: &str) -> Evidence {
        Evidence::PrintedFirst { text: text.to_owned() }
    }

    #[test]
    fn a_rank_that_lost_another_one_is_no_cause_though_it_ends_first() {
        let victims = Run::new(4).exits(2, 100, 1).prints(2, 101, "peer gone").exits(0, 103, 1);
        let victims = victims.prints(0, 103, "ConnectionResetError: [Errno 104] Connection reset by peer");
        // ends a little later, by itself
        let run = victims.prints(1, 90, OOM).exits(1, 108, 3);
        assert_eq!(run.cause(), (1, 2, Some(printed(OOM))));
        // was told to stop before it could
        let victims = Run::new(4).exits(2, 100, 1).prints(2, 101, "peer gone");
        assert_eq!(victims.prints(1, 99, OOM).exits(1, 1101, 143).cause(), (1, 2, Some(printed(OOM))));
        // has not ended yet
        let victims = Run::new(4).exits(2, 100, 1).prints(2, 101, "peer gone");
        assert_eq!(victims.prints(1, 99, OOM).cause(), (1, 2, Some(printed(OOM))));
        // says nothing
        let victims = Run::new(4).exits(2, 100, 1).prints(2, 101, "peer gone");
        let lost = |text: Option<&str>| Evidence::Lost { by: Rank(2), text: text.map(str::to_owned) };
        assert_eq!(victims.exits(1, 108, 3).cause(), (1, 2, Some(lost(None))));
        // prints its error later than the other has ended
        let victims = Run::new(4).exits(2, 100, 1).prints(2, 101, "peer gone");
        let run = victims.prints(1, 140, OOM).exits(1, 150, 3);
        assert_eq!(run.cause(), (1, 2, Some(lost(Some(OOM)))));
        // much later it is another failure
        let victims = Run::new(4).exits(2, 100, 1).prints(2, 101, "peer gone");
        assert_eq!(victims.exits(1, 60_000, 3).cause().0, 2);
    }

    #[test]
    fn a_rank_whose_host_was_rebooted_is_the_cause_however_late_the_host_is_back() {
        let victim = || Run::new(3).exits(0, 100, 1).prints(0, 99, "peer gone");
        let gone = |mut run: Run, ms: i64, cause: &str, stopped: bool| {
            let cause = Some(cause.to_owned());
            let exit = RankExit { code: None, signal: None, t: HostTime(0), error: None, stopped, cause };
            run.0[1].0 = Some((Stamp(ms * 1000), exit));
            run
        };
        let lost = Some(Evidence::Lost { by: Rank(0), text: None });
        for ms in [8_000, 60_000, 3_600_000] {
            assert_eq!(gone(victim(), ms, REBOOTED, false).cause(), (1, 0, lost.clone()), "after {ms} ms");
        }
        // another end that is told so late is another matter, and so is a reboot of a rank that had been told to stop
        let late = gone(victim(), 60_000, "how it ended was not recorded", false);
        assert_eq!(late.cause(), (0, 0, None));
        assert_eq!(gone(victim(), 60_000, REBOOTED, true).cause(), (0, 0, None));
        // one that says why it failed did not fail for want of the host
        let own = Run::new(3).exits(0, 100, 1).prints(0, 99, OOM);
        assert_eq!(gone(own, 60_000, REBOOTED, false).cause(), (0, 0, None));
        // of two the one whose time is known
        let killed = gone(victim().exits(2, 90, 137).exits(0, 80, 1), 60_000, REBOOTED, false);
        assert_eq!(killed.cause(), (2, 0, lost));
    }

    #[test]
    fn the_error_that_was_printed_first_is_the_cause() {
        let run = Run::new(2).prints(1, 10, OOM).prints(0, 90, "ValueError: bad gradient");
        assert_eq!(run.exits(0, 100, 1).exits(1, 150, 3).cause(), (1, 0, Some(printed(OOM))));
        // a rank that ends without a word, after the other had told its error
        let run = Run::new(2).prints(1, 10, OOM);
        assert_eq!(run.exits(0, 100, 1).exits(1, 150, 3).cause(), (1, 0, Some(printed(OOM))));
    }

    #[test]
    fn an_order_that_is_not_known_is_said() {
        let run = Run::new(2).prints(1, 80, OOM).prints(0, 90, "ValueError: bad gradient");
        let too = Some(Evidence::PrintedToo { rank: Rank(1), text: OOM.to_owned() });
        assert_eq!(run.exits(0, 100, 1).exits(1, 150, 3).cause(), (0, 0, too.clone()));
        let run = Run::new(2).exits(0, 100, 1).prints(1, 150, OOM).exits(1, 150, 3);
        assert_eq!(run.cause(), (0, 0, too));
        // what all ranks say has one cause
        let run = Run::new(2).prints(1, 10, "KeyError: 'rank 1'").prints(0, 90, "KeyError: 'rank 0'");
        assert_eq!(run.exits(0, 100, 1).exits(1, 150, 3).cause(), (0, 0, None));
        // long afterwards
        let run = Run::new(2).exits(0, 100, 1).prints(1, 900, OOM).exits(1, 901, 3);
        assert_eq!(run.cause(), (0, 0, None));
    }

    #[test]
    fn what_a_rank_says_for_it_was_told_to_stop_is_no_cause() {
        let killed = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Terminated";
        let run = Run::new(3).exits(0, 100, 1).prints(0, 99, "peer gone");
        assert_eq!(run.prints(2, 1150, killed).exits(2, 1200, 143).cause(), (0, 0, None));
        // one that was killed without a word by then is
        let run = Run::new(3).exits(0, 100, 1).prints(0, 99, "peer gone").exits(1, 130, 137);
        let run = run.prints(2, 1150, killed).exits(2, 1200, 143);
        assert_eq!(run.cause(), (1, 0, Some(Evidence::Lost { by: Rank(0), text: None })));
    }

    #[test]
    fn a_rank_that_was_killed_is_the_cause_whatever_others_printed_before() {
        for signal in [137, 139, 135] {
            let run = Run::new(2).prints(1, -20_000, "ERROR: upload failed, retrying");
            assert_eq!(run.exits(0, 100, signal).exits(1, 1200, 143).cause(), (0, 0, None));
        }
        let run = Run::new(2).prints(1, 90, OOM).exits(0, 100, 137);
        let too = Some(Evidence::PrintedToo { rank: Rank(1), text: OOM.to_owned() });
        assert_eq!(run.cause(), (0, 0, too));
        let mut run = Run::new(2).prints(1, -500, "ERROR: upload failed, retrying").exits(0, 100, 1);
        run.0[0].0.as_mut().unwrap().1.cause =
            Some("the OOM killer of its cgroup ended a process".to_owned());
        assert_eq!(run.cause(), (0, 0, None));
        // an abort may be an answer to another rank's end
        let run = Run::new(2).prints(1, 20, OOM).exits(0, 100, 134).exits(1, 300, 1);
        assert_eq!(run.cause(), (1, 0, Some(printed(OOM))));
        // one that ended without a word is not the fault of what another said long before
        let run = Run::new(2).prints(1, -20_000, "ERROR: upload failed, retrying").exits(0, 100, 1);
        assert_eq!(run.cause(), (0, 0, None));
        // and hides no other one
        let run = Run::new(3).prints(2, -20_000, "ERROR: upload failed, retrying").prints(1, 50, OOM);
        assert_eq!(run.exits(0, 100, 1).exits(1, 150, 3).cause(), (1, 0, Some(printed(OOM))));
        let run =
            Run::new(2).prints(1, -50_000, "ERROR: upload failed, retrying").prints(0, 90, "ValueError: x");
        assert_eq!(run.exits(0, 100, 1).exits(1, 1200, 143).cause(), (0, 0, None));
    }

    #[test]
    fn a_rank_that_had_ended_well_before_is_named() {
        let run = Run::new(3).steps(1, 40).exits(1, 50, 0).exits(0, 100, 1).prints(0, 99, "peer gone");
        let before = Evidence::EndedBefore { rank: Rank(1), step: Some(40) };
        assert_eq!(run.cause(), (0, 0, Some(before.clone())));
        let name = |rank: Rank| format!("rank {rank} (n2:0)");
        assert_eq!(before.words(name).unwrap(), "rank 1 (n2:0) had ended before (exit 0, at step 40)");
        // of ranks that say nothing, by their steps
        let silent =
            |step| Run::new(2).steps(1, 40).exits(1, 50, 0).steps(0, step).exits(0, 100, 1).cause().2;
        assert_eq!((silent(40), silent(90)), (Some(before), None));
        assert_eq!(Run::new(2).exits(1, 50, 0).exits(0, 100, 1).cause().2, None);
        // not of a rank that tells another reason, or was killed
        let run = Run::new(3).exits(1, 50, 0).exits(0, 100, 1).prints(0, 99, OOM);
        assert_eq!(run.cause(), (0, 0, None));
        assert_eq!(Run::new(3).exits(1, 50, 0).exits(0, 100, 137).cause(), (0, 0, None));
    }

    impl Run {
        fn because(mut self, rank: usize, cause: &str) -> Self {
            self.0[rank].0.as_mut().unwrap().1.cause = Some(cause.to_owned());
            self
        }
    }

    #[test]
    fn a_rank_that_waited_for_a_peer_at_its_start_may_be_the_cause() {
        let waited = "[W socket.cpp:601] [c10d] The client socket has failed to connect to [n1]:29500 (errno: 111 - Connection \
                      refused).";
        let run = Run::new(2).prints(1, 0, waited).exits(1, 5000, 137);
        let run =
            run.prints(0, 4990, "RuntimeError: NCCL communicator was aborted on rank 0.").exits(0, 5100, 1);
        assert_eq!(run.cause(), (1, 1, None));
    }

    #[test]
    fn what_a_rank_says_for_its_launcher_ended_it_is_no_cause() {
        let handler = "ERROR: interrupted by signal 15, saving a checkpoint";
        let run = |ms| {
            let run = Run::new(3).exits(1, 100, 3).prints(0, ms, handler).exits(0, 700, 143);
            let run = run.because(0, blame::BY_LAUNCHER);
            run.prints(2, 102, "ConnectionResetError: [Errno 104] Connection reset by peer")
                .exits(2, 103, 1)
                .cause()
        };
        assert_eq!((run(100), run(105)), ((1, 1, None), (1, 1, None)));
        // nothing told it to stop yet
        assert_eq!(run(99).0, 0);
    }

    #[test]
    fn of_exits_that_a_launcher_tells_together_the_one_that_it_named_first_is_first() {
        let run = Run::new(2).exits(0, 100, 1).exits(1, 100, 3).because(0, blame::LATER);
        assert_eq!(run.cause(), (1, 1, None));
        // it had only lost a peer
        let run =
            Run::new(2).prints(0, 90, "peer gone").exits(0, 100, 1).exits(1, 100, 3).because(1, blame::LATER);
        assert_eq!(run.cause(), (1, 0, Some(Evidence::Lost { by: Rank(0), text: None })));
    }

    #[test]
    fn an_error_that_a_rank_wrote_down_for_torchrun_is_no_more_than_its_own_word() {
        let run = Run::new(2).prints(1, 10, OOM).prints(0, 90, "ValueError: bad gradient");
        let run = run.exits(0, 100, 1).because(0, "ValueError: bad gradient").exits(1, 150, 3);
        assert_eq!(run.cause(), (1, 0, Some(printed(OOM))));
    }

    fn too(rank: u32) -> Evidence {
        Evidence::PrintedToo { rank: Rank(rank), text: OOM.to_owned() }
    }

    #[test]
    fn an_exit_counts_within_ten_seconds_and_no_longer() {
        let run = |ms| Run::new(2).exits(0, 100, 1).prints(0, 99, "peer gone").exits(1, ms, 137).cause().0;
        assert_eq!((run(10_100), run(10_101)), (1, 0));
        // nor does one that ended well
        let run = Run::new(2).exits(0, 100, 1).prints(0, 99, "peer gone").prints(1, 90, OOM).exits(1, 150, 0);
        assert_eq!(run.cause(), (0, 0, None));
    }

    #[test]
    fn an_error_counts_for_ten_seconds_and_no_longer() {
        let run = |ms| Run::new(2).prints(1, ms, OOM).exits(0, 10_100, 1).exits(1, 10_150, 3).cause().0;
        assert_eq!((run(100), run(99)), (1, 0));
    }

    #[test]
    fn own_words_of_two_ranks_have_an_order_from_fifty_milliseconds_on() {
        let run = |ms| {
            let run = Run::new(2).prints(1, ms, OOM).prints(0, 500, "ValueError: bad gradient");
            let (rank, _, evidence) = run.exits(0, 510, 1).exits(1, 600, 3).cause();
            (rank, evidence)
        };
        assert_eq!(run(450), (1, Some(printed(OOM))));
        assert_eq!((run(451), run(549), run(550)), ((0, Some(too(1))), (0, Some(too(1))), (0, None)));
    }

    #[test]
    fn an_error_beside_a_silent_exit_is_close_for_less_than_a_third_of_a_second() {
        let run = |ms| Run::new(2).exits(0, 1000, 1).prints(1, ms, OOM).exits(1, 1500, 3).cause();
        assert_eq!(run(999), (1, 0, Some(printed(OOM))));
        // of the same moment the exit counts
        assert_eq!(
            (run(1000), run(1299), run(1300)),
            ((0, 0, Some(too(1))), (0, 0, Some(too(1))), (0, 0, None))
        );
        // one that was killed is the cause though an error lies before it
        let killed = |ms| Run::new(2).exits(0, 1000, 137).prints(1, ms, OOM).exits(1, 1500, 3).cause();
        assert_eq!((killed(701), killed(700)), ((0, 0, Some(too(1))), (0, 0, None)));
    }

    #[test]
    fn behind_a_rank_that_lost_its_peer_the_first_of_error_and_death_counts() {
        let victim = || Run::new(3).exits(0, 100, 1).prints(0, 99, "peer gone");
        let lost = |text: Option<&str>| Evidence::Lost { by: Rank(0), text: text.map(str::to_owned) };
        let run = |ms| victim().prints(1, ms, OOM).exits(2, 200, 137).cause();
        assert_eq!(run(199), (1, 0, Some(lost(Some(OOM)))));
        assert_eq!((run(200), run(201)), ((2, 0, Some(lost(None))), (2, 0, Some(lost(None)))));
        // an error of the moment of the exit was printed first
        assert_eq!((run(100), run(101)), ((1, 0, Some(printed(OOM))), (1, 0, Some(lost(Some(OOM))))));
        // of ranks without a word none counts where an error was printed, and of two deaths the first
        let run = victim().prints(1, 300, OOM).exits(1, 310, 1).exits(2, 200, 1);
        assert_eq!(run.cause(), (1, 0, Some(lost(Some(OOM)))));
        assert_eq!(victim().exits(1, 300, 137).exits(2, 200, 139).cause().0, 2);
        assert_eq!(victim().exits(1, 300, 3).exits(2, 200, 3).cause().0, 2);
        // another victim is no cause, and one that was told to stop has not failed
        assert_eq!(victim().exits(1, 120, 1).prints(1, 119, "peer gone").cause(), (0, 0, None));
        assert_eq!(victim().exits(1, 120, 143).cause(), (0, 0, None));
        // a broken pipe says by itself that another one is gone; the victim of one that was killed is none
        assert_eq!(Run::new(2).exits(0, 100, 141).exits(1, 150, 3).cause(), (1, 0, Some(lost(None))));
        assert_eq!(victim().exits(1, 120, 137).prints(1, 119, "peer gone").cause(), (0, 0, None));
    }

    #[test]
    fn an_error_counts_until_ranks_are_told_to_stop_or_where_they_end_by_themselves() {
        let victim = || Run::new(2).exits(0, 100, 1).prints(0, 99, "peer gone");
        let stopped = |ms| victim().prints(1, ms, OOM).exits(1, 1500, 143).cause().0;
        assert_eq!((stopped(1099), stopped(1100)), (1, 0));
        assert_eq!(victim().prints(1, 1100, OOM).exits(1, 1500, 1).cause().0, 1);
    }

    #[test]
    fn who_had_ended_well_before_is_told_only_where_it_was_waited_for() {
        let run =
            |own, ended| Run::new(2).steps(1, 40).exits(1, ended, 0).steps(0, own).exits(0, 100, 1).cause().2;
        let before = Some(Evidence::EndedBefore { rank: Rank(1), step: Some(40) });
        assert_eq!((run(41, 99), run(42, 99), run(41, 100)), (before, None, None));
        let steps = |rank, step| Run::new(2).steps(rank, step).exits(1, 50, 0).exits(0, 100, 1).cause().2;
        assert_eq!((steps(0, 1), steps(1, 1)), (None, None));
        // of two the first; none that failed
        let run = Run::new(4).exits(3, 40, 0).exits(1, 50, 0).exits(2, 30, 143).exits(0, 100, 1).prints(
            0,
            99,
            "peer gone",
        );
        assert_eq!(run.cause().2, Some(Evidence::EndedBefore { rank: Rank(3), step: None }));
    }

    #[test]
    fn of_exits_of_one_moment_the_lowest_rank_s_is_first() {
        assert_eq!(Run::new(3).exits(2, 100, 1).exits(1, 100, 2).cause(), (1, 1, None));
        // one that could not be started says so itself, whatever others print
        let mut run = Run::new(2).prints(1, 90, OOM).exits(0, 100, 126);
        run.0[0].0.as_mut().unwrap().1.error = Some("no such file".to_owned());
        assert_eq!(run.cause(), (0, 0, None));
    }

    /// Three ranks: two on hosts whose clocks are known to 2 ms each, the third one on the host of the second.
    fn clocks() -> [(HostId, u32); 3] {
        [("a", 2_000), ("b", 2_000), ("b", 2_000)].map(|(host, us)| (HostId::from(host), us))
    }

    #[test]
    fn of_two_hosts_the_first_exit_is_the_first_only_by_more_than_their_clocks_are_unsure_of() {
        let same = |rank| Some(Evidence::SameTime { rank: Rank(rank), unsure_us: 4_000 });
        let run = |ms| Run::new(3).exits(0, 100, 1).exits(1, ms, 3);
        assert_eq!(run(103).cause_by(&clocks()), (0, 0, same(1)));
        assert_eq!(run(104).cause_by(&clocks()), (0, 0, None), "more than both together");
        assert_eq!(
            run(103).cause_by(&clocks()[..1]),
            (0, 0, None),
            "of a clock that is not known nothing is said"
        );
        // ranks of one host are told by one clock
        let run = Run::new(3).exits(1, 100, 1).exits(2, 101, 3);
        assert_eq!(run.cause_by(&clocks()), (1, 1, None));
        assert_eq!(run.exits(0, 102, 1).cause_by(&clocks()), (1, 1, same(0)));
        // the nearest is named
        let run = Run::new(3).exits(0, 100, 1).exits(1, 103, 1).exits(2, 102, 1);
        assert_eq!(run.cause_by(&clocks()), (0, 0, same(2)));
    }

    #[test]
    fn where_more_than_the_time_tells_the_cause_the_clocks_do_not_matter() {
        let run = Run::new(3).exits(0, 100, 1).exits(1, 101, 3);
        // the other one says that it has lost a peer, or was told to stop, or ended well
        assert_eq!(run.clone().prints(1, 101, "peer gone").cause_by(&clocks()), (0, 0, None));
        assert_eq!(Run::new(3).exits(0, 100, 1).exits(1, 101, 143).cause_by(&clocks()), (0, 0, None));
        assert_eq!(Run::new(3).exits(0, 100, 1).exits(1, 101, 0).cause_by(&clocks()), (0, 0, None));
        // one was killed: the other one may have failed for it; of two that were killed the order is not known
        let killed = Run::new(3).exits(0, 100, 137).exits(1, 101, 3);
        assert_eq!(killed.cause_by(&clocks()), (0, 0, None));
        let same = Some(Evidence::SameTime { rank: Rank(1), unsure_us: 4_000 });
        assert_eq!(killed.exits(1, 101, 139).cause_by(&clocks()), (0, 0, same));
        // a launcher tells in its own order, and a rank that could not be started was not timed
        assert_eq!(run.clone().because(1, blame::LATER).cause_by(&clocks()), (0, 0, None));
        for rank in 0..2 {
            let mut failed = run.clone();
            failed.0[rank].0.as_mut().unwrap().1.error = Some("no such file".to_owned());
            assert_eq!(failed.cause_by(&clocks()), (0, 0, None));
        }
    }

    #[test]
    fn words_and_headlines_tell_each_kind_of_evidence() {
        let name = |rank: Rank| format!("rank {rank}");
        let same = Evidence::SameTime { rank: Rank(5), unsure_us: 2_000 };
        assert_eq!(same.words(name).unwrap(), "it or rank 5 failed first: their clocks are known to ±2.0 ms");
        assert_eq!(Evidence::headline(Some(&same), "exit 3"), "failed: exit 3");
        let lost = Evidence::Lost { by: Rank(2), text: None };
        assert_eq!(lost.words(name).unwrap(), "rank 2 ended before it, but had lost a peer");
        let said = too(1).words(name).unwrap();
        assert_eq!(said, format!("rank 1 printed an error at about the same time: {OOM}"));
        assert_eq!((printed(OOM).words(name), Evidence::Unknown.words(name)), (None, None));
        let headline = |evidence: Option<&Evidence>| Evidence::headline(evidence, "exit 3");
        assert_eq!(headline(None), "failed first: exit 3");
        assert_eq!(headline(Some(&lost)), "failed: exit 3");
        let told = Evidence::Lost { by: Rank(2), text: Some("boom".to_owned()) };
        assert_eq!(headline(Some(&told)), "failed: boom; exit 3");
        assert_eq!(headline(Some(&printed("boom"))), "printed an error first: boom; exit 3");
    }

    #[test]
    fn what_a_newer_version_knows_is_read() {
        let text = serde_json::to_string(&Evidence::EndedBefore { rank: Rank(1), step: None }).unwrap();
        assert_eq!(text, r#"{"kind":"ended_before","rank":1}"#);
        let newer = r#"{"kind":"eaten","by":1}"#;
        assert_eq!(serde_json::from_str::<Evidence>(newer).unwrap(), Evidence::Unknown);
    }
}
