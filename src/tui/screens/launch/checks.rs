//! What the hosts of a plan find before the start: asked for each plan, shown a line for hosts that find the same. Pure;
//! must not know how they are asked.

use std::sync::Arc;

use crate::domain::doctor::{CONNECTION, Fix, Matrix};
use crate::domain::ids::{GpuUuid, HostId};
use crate::domain::needs;
use crate::domain::occupancy::Occupancy;
use crate::domain::preflight::{Finding, Mark};
use crate::domain::run::Slot;
use crate::domain::time::Stamp;
use crate::domain::units::ranges;
use crate::launch::plan::LaunchPlan;
use crate::tui::core::{Effect, Look, LookOf};
use crate::tui::screens::Model;

/// A look of the doctor that is older than this is made again, microseconds.
const LOOK_AGE_US: i64 = 60_000_000;

/// What the doctor knows of the hosts of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Looked {
    /// The number of the look; 0 before the first.
    number: u64,
    /// When it was asked for.
    at: Option<Stamp>,
    of: Option<LookOf>,
    found: Matrix,
    is_over: bool,
}

impl Looked {
    /// What is wrong with a host, the check before it.
    fn troubles(&self, host: &HostId) -> impl Iterator<Item = Finding> {
        let rows = self.found.rows.iter().filter_map(|row| Some((row.check, row.verdicts.get(host)?)));
        // whether it is reached at all is told by the plan
        let troubles = rows.filter(|(check, verdict)| verdict.is_trouble() && *check != CONNECTION);
        troubles.map(|(check, verdict)| {
            let cause = verdict.cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
            // what may be left as it is takes no room
            let on_another = matches!(&verdict.fix, Some(Fix::On(..)));
            // what is to be done on another host names it
            let helps = if on_another { verdict.remedy.clone() } else { verdict.help() };
            let helps = helps.filter(|_| verdict.stops_launch());
            let fix = helps.map_or_else(String::new, |helps| format!("; fix: {helps}"));
            Finding::new(verdict.for_launch(), format!("{check}: {}{cause}{fix}", verdict.evidence))
        })
    }

    /// Whether it was for the same, a moment ago.
    fn is_of(&self, of: &LookOf, now: Stamp) -> bool {
        let is_new = self.at.is_some_and(|at| now.micros_since(at) < LOOK_AGE_US);
        is_new && self.of.as_ref() == Some(of)
    }
}

/// The answers to one question.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checks {
    /// Its number; answers to others are dropped.
    pub asked: u64,
    /// The hosts of the plan, each with its answer.
    pub hosts: Vec<(HostId, Option<Vec<Finding>>)>,
    /// What the doctor knows of them. It does not depend on what is typed, so it stays while the command changes.
    pub looked: Looked,
    /// What it knows of the files that the command names.
    pub compared: Looked,
    /// What it knows of the image.
    pub inside: Looked,
}

/// A line of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckLine {
    /// The worst that was found; `None` while an answer is waited for.
    pub mark: Option<Mark>,
    /// The hosts that found it.
    pub hosts: Vec<HostId>,
    /// What was found.
    pub text: String,
}

impl Checks {
    fn looks(&self) -> [&Looked; 3] {
        [&self.looked, &self.compared, &self.inside]
    }

    /// Forgets the answers; later ones to the same question are dropped.
    pub(super) fn forget(&mut self) {
        self.asked += 1;
        self.hosts.clear();
    }

    /// Asks the hosts of a plan.
    pub(super) fn ask(&mut self, plan: &Arc<LaunchPlan>) -> Effect {
        self.asked += 1;
        self.hosts = plan.hosts.iter().map(|share| (share.host.clone(), None)).collect();
        Effect::Preflight(self.asked, Arc::clone(plan))
    }

    /// Takes an answer in.
    fn take(&mut self, number: u64, host: &HostId, findings: Vec<Finding>) {
        if number == self.asked
            && let Some((_, answer)) = self.hosts.iter_mut().find(|(asked, _)| asked == host)
        {
            *answer = Some(findings);
        }
    }
}

/// A host has answered, or has not.
pub fn told(model: &mut Model, number: u64, host: &HostId, findings: Vec<Finding>) {
    model.ui.launch.checks.take(number, host, findings);
}

/// Has the doctor look at the hosts of a plan for what it rests on, unless that was done a moment ago.
pub(super) fn look(model: &mut Model, plan: &LaunchPlan) -> Vec<Effect> {
    let hosts = plan.spec.hosts();
    let checks = needs::checks(&plan.spec, &plan.hosts);
    let paths = needs::paths(&plan.spec, &plan.hosts);
    let (given, runs) = (needs::given(&plan.hosts), needs::programs(&plan.spec, &plan.hosts));
    // of a script, or of what stands in its place in the command
    let synced = plan.spec.options.sync.clone().map(|sync| (sync, plan.spec.command.clone()));
    let has_code = synced.is_some() || runs.values().any(|run| run.code.is_some() || run.module.is_some());
    let reads = |check: &&str| {
        let is_read = needs::READ_SCRIPTS.contains(check);
        is_read && (!paths.is_empty() || has_code && *check == "import")
    };
    let (reading, mut checks): (Vec<_>, Vec<_>) = checks.into_iter().partition(reads);
    // without a script nothing that it imports is known
    checks.retain(|check| *check != "import");
    let (image, uses) = (needs::image(&plan.spec, &plan.hosts), needs::gpus(&plan.spec));
    let controller = needs::controller(&plan.spec, &plan.hosts);
    let rests = (!checks.is_empty()).then(|| LookOf::Plan {
        hosts: hosts.clone(),
        checks,
        given,
        workdirs: needs::workdirs(&plan.hosts),
        image,
        uses,
        controller,
        ports: needs::ports(&plan.spec, &plan.hosts),
    });
    // one host has nothing to differ from
    let is_wanted = !reading.is_empty() || (hosts.len() > 1 && !paths.is_empty());
    let image = needs::in_image(&plan.spec, &plan.hosts).map(|inside| {
        let (hosts, runs, synced) = (hosts.clone(), runs.clone(), synced.clone());
        LookOf::Image { hosts, inside, uses: needs::gpus(&plan.spec), controller, runs, synced }
    });
    let names = is_wanted.then_some(LookOf::Files { hosts, paths, checks: reading, runs, synced });
    let rests = begin(model, rests, |checks| &mut checks.looked);
    let names = begin(model, names, |checks| &mut checks.compared);
    let image = begin(model, image, |checks| &mut checks.inside);
    rests.into_iter().chain(names).chain(image).collect()
}

fn begin(model: &mut Model, of: Option<LookOf>, which: fn(&mut Checks) -> &mut Looked) -> Option<Effect> {
    let now = model.now;
    let looked = which(&mut model.ui.launch.checks);
    let Some(of) = of else {
        *looked = Looked::default();
        return None;
    };
    if looked.is_of(&of, now) {
        return None;
    }
    let number = model.ui.next_look();
    let looked = which(&mut model.ui.launch.checks);
    *looked = Looked { number, at: Some(now), of: Some(of.clone()), ..Looked::default() };
    Some(Effect::CheckHosts(Look { number, of }))
}

/// Whether a look is one of the form's.
pub fn looks_by(model: &Model, number: u64) -> bool {
    model.ui.launch.checks.looks().iter().any(|looked| looked.number == number)
}

/// What a look has found so far, and whether that is all.
pub fn looked(model: &mut Model, number: u64, found: Matrix, is_over: bool) {
    let Checks { looked, compared, inside, .. } = &mut model.ui.launch.checks;
    if let Some(looked) = [looked, compared, inside].into_iter().find(|looked| looked.number == number) {
        (looked.found, looked.is_over) = (found, is_over);
    }
}

/// Whether the doctor has not told all yet.
pub fn is_looking(model: &Model) -> bool {
    model.ui.launch.checks.looks().iter().any(|looked| looked.number > 0 && !looked.is_over)
}

/// The lines of the screen, what is wrong first.
pub fn lines(model: &Model) -> Vec<CheckLine> {
    let form = &model.ui.launch;
    let Some(Ok(plan)) = &form.plan else { return Vec::new() };
    let mut lines: Vec<CheckLine> = Vec::new();
    for (host, answer) in &form.checks.hosts {
        let mut findings = gpus(model, plan, host);
        findings.extend(form.checks.looks().into_iter().flat_map(|looked| looked.troubles(host)));
        match answer {
            Some(answer) => findings.extend(answer.iter().cloned()),
            None => findings.retain(|finding| finding.mark > Mark::Good),
        }
        let worst = findings.iter().map(|finding| finding.mark).max();
        let mark = if answer.is_none() && worst.is_none() { None } else { Some(worst.unwrap_or(Mark::Good)) };
        // beside a failure what is well says nothing
        let shown = findings.iter().filter(|finding| Some(finding.mark) == mark);
        let mut texts: Vec<&str> = shown.map(|finding| finding.text.as_str()).collect();
        if mark.is_none() {
            texts.push("asking …");
        }
        let text = model.hosts_option.with(&texts.join(" · "));
        match lines.iter_mut().find(|line| line.mark == mark && line.text == text) {
            Some(line) => line.hosts.push(host.clone()),
            None => lines.push(CheckLine { mark, hosts: vec![host.clone()], text }),
        }
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.mark));
    lines
}

/// Whether a host of the plan says that the start would fail.
pub fn would_fail(model: &Model) -> bool {
    lines(model).first().is_some_and(|line| line.mark == Some(Mark::Bad))
}

/// Whether the GPUs of the plan are still free, as far as their host has told: acknowledged or not, no launch takes one that has fallen
/// off the bus.
fn gpus(model: &Model, plan: &LaunchPlan, host: &HostId) -> Vec<Finding> {
    let Some(state) = model.world.hosts.get(host) else { return Vec::new() };
    let sample = state.latest().map(|(_, sample)| sample);
    let free_memory = model.hosts.of(host).map(|entry| entry.free_memory);
    let placed = plan.spec.placements.iter().filter(|placement| placement.host == *host);
    let slots = placed.flat_map(|placement| std::iter::once(&placement.slot).chain(&placement.more));
    let gpus = slots.filter_map(|slot| match slot {
        Slot::Gpu { index, uuid, .. } => Some((*index, uuid)),
        Slot::Cpu { .. } => None,
    });
    let (mut free, mut found) = (Vec::new(), Vec::new());
    for (index, uuid) in gpus {
        let live = sample.and_then(|sample| sample.gpus.iter().find(|live| live.index == index));
        let uuid: &GpuUuid = uuid;
        let known = state.info.as_ref().and_then(|info| info.gpus.iter().find(|gpu| gpu.uuid == *uuid));
        let Some(gpu) = known else { continue };
        let occupancy = Occupancy::of(gpu, state.leases.as_ref(), live, free_memory.unwrap_or_default())
            .unless_off_bus(state.is_off_bus(gpu, model.moment()));
        if occupancy.is_free() {
            free.push(index);
        } else {
            let words = occupancy.words(&|_| None);
            let text = match occupancy {
                Occupancy::OffBus => format!("GPU {index}: {words}"),
                _ => format!("GPU {index} is taken: {words}"),
            };
            found.push(Finding::new(Mark::Look, text));
        }
    }
    if !free.is_empty() {
        let word = if free.len() == 1 { "GPU" } else { "GPUs" };
        found.insert(0, Finding::new(Mark::Good, format!("{word} {} free", ranges(free))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_comes_after_its_time_is_shown() {
        let host = HostId::from("a");
        let mut checks = Checks { asked: 2, hosts: vec![(host.clone(), None)], ..Checks::default() };
        let finding = |mark, text: &str| vec![Finding::new(mark, text)];
        checks.take(2, &host, finding(Mark::Unknown, "no answer in 3 s"));
        checks.take(1, &host, finding(Mark::Bad, "of an older question"));
        checks.take(2, &host, finding(Mark::Good, "folder /a"));
        assert_eq!(checks.hosts, [(host, Some(finding(Mark::Good, "folder /a")))]);
    }
}
