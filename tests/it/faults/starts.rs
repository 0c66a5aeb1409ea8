//! Row 40: a host is lost at any moment of a start, and either all ranks go on, each started once, or none.

use std::time::Instant;

use hvtui::clock::now;
use hvtui::domain::event::Event;
use hvtui::domain::host::LinkState;
use hvtui::domain::run::RunStage;

use super::invariants::nothing_left;
use super::matrix::Notes;
use super::rig::{Job, Rig, until};
use crate::common::client::Client;

/// How often the start is cut, each time a little later.
const CUTS: u64 = 12;
const PLACES: &str = "n1:1,n2:1,n3:1,n4:1";
/// Of the host that is lost, and of the one whose answer is waited for.
const LOST: &str = "n4";
const SLOW: &str = "n3";
/// A host that was told to start may be away for 3 s: no run is given up for one that was not away for nearly as long.
const TOO_LONG: f64 = 2.5;

/// The hosts that have a folder of the run: they have it from when they are asked whether they can start it.
fn asked(rig: &Rig, run: &str) -> Vec<String> {
    let mut hosts = rig.hosts();
    hosts.retain(|host| rig.cluster.spool(host, run).is_some());
    hosts
}

/// The longest time that a host was away, in seconds, as it is recorded.
fn away(job: &Job<'_>, host: &str) -> f64 {
    let end = job.events().last().map(|envelope| (envelope.at, LinkState::Up));
    let (mut since, mut longest) = (None, 0.0_f64);
    for (at, state) in job.links(host).into_iter().chain(end) {
        match state {
            LinkState::Down { .. } => since = since.or(Some(at)),
            LinkState::Up => {
                let away = since.take().map_or(0.0, |since| at.micros_since(since) as f64 / 1e6);
                longest = longest.max(away);
            }
            _ => {}
        }
    }
    longest
}

/// How often each rank was started.
fn starts(rig: &Rig, run: &str) -> Vec<u32> {
    let count = |host: &String| rig.cluster.on(host, &format!("cat ~/starts-{run} 2>/dev/null | wc -l"));
    rig.hosts().iter().map(|host| count(host).trim().parse().expect("a number")).collect()
}

/// What is left on the hosts of a run that never started: nothing at all.
fn nothing_made(rig: &Rig, run: &str) {
    until(&format!("all hosts to give back what they had ready for {run}"), || asked(rig, run).is_empty());
    assert_eq!(starts(rig, run), [0; 4], "no rank of it was started");
    nothing_left(rig, run);
}

pub(crate) fn host_lost_while_starting(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(4)?;
    let warm = rig.person();
    let line = "echo started >>~/starts-$HVTUI_RUN; exec sleep 0.5";
    assert_eq!(warm.run(&["run", "-H", PLACES, "--", "true"]).code, 0);
    let before = rig.relay(LOST).bytes_up();
    assert_eq!(warm.run(&["run", "-H", PLACES, "--", "sh", "-c", line]).code, 0);
    let whole = rig.relay(LOST).bytes_up() - before;
    let (mut none, mut all, mut cuts) = (0, 0, 0);
    for cut in 1..=CUTS {
        let person = rig.person();
        rig.relay(LOST).set(|weather| weather.cut_up_after = whole * cut / CUTS);
        let mut job = rig.launch(&person, &["run", "--verbose", "-H", PLACES, "--", "sh", "-c", line]);
        let mut came = 0;
        until("the cut, or the end", || {
            came += rig.relay(LOST).cuts();
            came > 0 || !job.runs()
        });
        rig.relay(LOST).clear();
        let lost = Instant::now();
        let code = job.wait();
        cuts += u32::from(came + rig.relay(LOST).cuts() > 0);
        let Some(run) = job.newest() else {
            none += 1;
            assert_ne!(code, 0, "{}", job.last_words());
            continue;
        };
        for host in rig.hosts() {
            rig.cluster.until_free(&host, &run);
        }
        let starts = starts(&rig, &run);
        if code == 0 {
            assert_eq!(starts, [1; 4], "cut {cut}: {}", job.said());
            all += 1;
        } else {
            notes.took(&format!("cut {cut}: all given up"), lost.elapsed().as_secs_f64(), 5.0);
            // The host is back at once, and an order that was lost is said again. Only where that took too long the others
            // have begun, and were ended.
            let too_long = job.said().contains("n4 was lost while the run was being started");
            let others = starts[..3] == [1; 3] && starts[3] <= 1 && away(&job, LOST) >= TOO_LONG;
            let good = starts == [0; 4] || (too_long && others);
            assert!(good, "cut {cut}: half started: {starts:?}: {}", job.said());
            none += 1;
        }
        nothing_left(&rig, &run);
    }
    assert!(cuts >= CUTS as u32 / 4, "of {CUTS} starts only {cuts} were cut");
    assert!(all > 0 && none > 0, "the cuts were all early or all late: {all} started, {none} given up");
    notes.say(&format!("{CUTS} cuts: {all} times all ranks started once, {none} times none goes on"));
    Some(())
}

/// A launch that stands still between its two questions: all hosts but [`SLOW`], whose login shell takes its time, have
/// answered that they can start.
struct Half<'a> {
    rig: &'a Rig,
    job: Job<'a>,
    run: String,
}

impl<'a> Half<'a> {
    /// `slow` are the hosts that have not answered.
    fn launch(rig: &'a Rig, person: &'a Client<'a>, slow: &[&str]) -> Self {
        for host in rig.hosts() {
            // no longer than a profile may take
            let profile = "i=0; while [ ! -e ~/go ] && [ $i -lt 120 ]; do sleep 0.1; i=$((i+1)); done";
            let go = if slow.contains(&&*host) { "rm -f ~/go" } else { "touch ~/go" };
            rig.cluster.on(&host, &format!("rm -f ~/enough; {go}; echo '{profile}' >~/.profile"));
        }
        let line = "echo started >>~/starts-$HVTUI_RUN; while [ ! -e ~/enough ]; do sleep 0.05; done";
        let args = ["run", "--verbose", "--env-from-login", "-H", PLACES, "--", "sh", "-c", line];
        let job = rig.launch(person, &args);
        let run = job.run();
        let half = Self { rig, job, run };
        let quick = 4 - slow.len();
        until("all but the slow ones to be ready", || asked(rig, &half.run).len() == quick);
        // and to have said so: what is lost from now on is not their answer
        until("the slow ones alone to be waited for", || half.waits_for().is_some_and(|names| names == slow));
        half
    }

    /// Whose answer is waited for.
    fn waits_for(&self) -> Option<Vec<String>> {
        self.job.events().into_iter().rev().find_map(|envelope| match envelope.event {
            Event::StageEntered { stage: RunStage::Prepare, waiting_for } => Some(waiting_for.names),
            _ => None,
        })
    }

    /// Lets a slow host answer.
    fn go(&self, host: &str) {
        self.rig.cluster.on(host, "touch ~/go");
    }

    /// Waits until the ranks on these hosts have started.
    fn started(&self, wanted: [u32; 4]) {
        until(&format!("starts as {wanted:?}"), || starts(self.rig, &self.run) == wanted);
    }

    /// [`LOST`] is lost, and back at once.
    fn lose(&self) {
        self.rig.relay(LOST).reset();
        self.rig.relay(LOST).clear();
    }

    /// [`LOST`] is lost, and stays away.
    fn lose_for_good(&self) {
        self.rig.relay(LOST).set(|weather| weather.refuse = true);
        self.rig.relay(LOST).reset();
    }

    /// All ranks run, each started once, and come to their good end.
    fn all_once(mut self) {
        self.started([1; 4]);
        self.job.enough();
        let code = self.job.wait();
        assert_eq!(code, 0, "{}", self.job.said());
        assert_eq!(starts(self.rig, &self.run), [1; 4], "each once: {}", self.job.said());
        nothing_left(self.rig, &self.run);
    }
}

pub(crate) fn at_each_edge(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(4)?;
    let warm = rig.person();
    assert_eq!(warm.run(&["run", "-H", PLACES, "--", "true"]).code, 0);
    answer_lost_before_the_order(&rig);
    gone_before_the_order(&rig, notes);
    order_lost(&rig);
    answer_to_the_order_lost(&rig);
    gone_after_the_order(&rig, notes);
    client_gone(&rig, notes);
    Some(())
}

/// It could start, and its word does not come: nothing was ordered yet, so nothing starts.
fn answer_lost_before_the_order(rig: &Rig) {
    let person = rig.person();
    let mut half = Half::launch(rig, &person, &[SLOW, LOST]);
    rig.relay(LOST).set(|weather| weather.stall_down = true);
    half.go(LOST);
    until("n4 to be ready", || asked(rig, &half.run).iter().any(|host| host == LOST));
    half.lose();
    let code = half.job.wait();
    assert_eq!(code, 69, "{}", half.job.said());
    half.go(SLOW);
    nothing_made(rig, &half.run);
}

fn gone_before_the_order(rig: &Rig, notes: &mut Notes) {
    let person = rig.person();
    let mut half = Half::launch(rig, &person, &[SLOW]);
    let since = Instant::now();
    half.lose_for_good();
    let code = half.job.wait();
    notes.took("lost before the order: given up", since.elapsed().as_secs_f64(), 5.0);
    assert_eq!(code, 69, "{}", half.job.said());
    assert!(half.job.said().contains("n4 was lost before anything started"), "{}", half.job.said());
    rig.relay(LOST).clear();
    half.go(SLOW);
    nothing_made(rig, &half.run);
    // and with the same hosts another start goes well
    assert_eq!(rig.person().run(&["run", "-H", PLACES, "--", "true"]).code, 0);
}

/// The others start; the order to the one is lost with its link, and is said again.
fn order_lost(rig: &Rig) {
    let person = rig.person();
    let half = Half::launch(rig, &person, &[SLOW]);
    rig.relay(LOST).set(|weather| weather.stall_up = true);
    half.go(SLOW);
    half.started([1, 1, 1, 0]);
    half.lose();
    half.all_once();
}

/// It starts, and its word does not come: it is asked again, and starts nothing twice.
fn answer_to_the_order_lost(rig: &Rig) {
    let person = rig.person();
    let half = Half::launch(rig, &person, &[SLOW]);
    rig.relay(LOST).set(|weather| weather.stall_down = true);
    half.go(SLOW);
    half.started([1; 4]);
    let since = now();
    half.lose();
    half.job.up_after(LOST, since);
    half.all_once();
}

/// The order to the one is lost, and it stays away: the others have begun, are ended, and it never begins.
fn gone_after_the_order(rig: &Rig, notes: &mut Notes) {
    let person = rig.person();
    let mut half = Half::launch(rig, &person, &[SLOW]);
    rig.relay(LOST).set(|weather| weather.stall_up = true);
    half.go(SLOW);
    half.started([1, 1, 1, 0]);
    let since = Instant::now();
    half.lose_for_good();
    rig.relay(LOST).set(|weather| weather.stall_up = false);
    for host in ["n1", "n2", "n3"] {
        rig.cluster.until_free(host, &half.run);
    }
    notes.took("lost after the order: the others are ended", since.elapsed().as_secs_f64(), 5.0);
    rig.relay(LOST).clear();
    let code = half.job.wait();
    assert_eq!(code, 69, "{}", half.job.said());
    assert!(half.job.said().contains("n4 was lost while the run was being started"), "{}", half.job.said());
    assert_eq!(starts(rig, &half.run), [1, 1, 1, 0], "{}", half.job.said());
    nothing_left(rig, &half.run);
}

/// No client is there any more that could order the start: the hosts give back what they had ready.
fn client_gone(rig: &Rig, notes: &mut Notes) {
    let person = rig.person();
    let mut half = Half::launch(rig, &person, &[SLOW]);
    let since = Instant::now();
    half.job.kill_client();
    until("the quick hosts to give it back", || asked(rig, &half.run).is_empty());
    notes.took("without its client: given back", since.elapsed().as_secs_f64(), 60.0);
    half.go(SLOW);
    for host in rig.hosts() {
        rig.cluster.until_none(&host, |process| process.args.contains("agent --stdio"));
    }
    nothing_made(rig, &half.run);
}
