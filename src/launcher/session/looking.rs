//! Launches that wait for the doctor: before a launch becomes a run, the hosts of its plan are asked for the checks that it rests
//! on. What is red there keeps it from starting, unless that is wanted all the same.

use super::{Output, Session};
use crate::doctor::Contexts;
use crate::domain::doctor::{CONNECTION, Group, Matrix, groups, names, troubles};
use crate::domain::host::LinkState;
use crate::domain::ids::HostId;
use crate::domain::needs;
use crate::domain::preflight::Mark;
use crate::domain::time::Stamp;
use crate::domain::units::counted;
use crate::launch::error::{LaunchError, LaunchFault};
use crate::launch::plan::LaunchPlan;
use crate::launch::request::OnRed;
use crate::launcher::checkup::{Checkup, contexts};
use crate::launcher::gist;
use crate::launcher::waiting::PendingLaunch;
use crate::wire::doctor::Checked;

/// How long the checks may take: what has not been told by then keeps nothing from starting.
const PATIENCE_US: i64 = 5_000_000;

/// How long it may take until its hosts have told where the others find them.
const MEETING_US: i64 = 1_000_000;

/// The looks of launches have numbers from here on; those below belong to callers of [`Session::check`].
const FIRST: u64 = 1 << 62;

/// The looks under way.
#[derive(Debug, Default)]
pub(super) struct Looks {
    begun: u64,
    all: Vec<Look>,
}

/// A launch that could be planned, and what its hosts have told so far.
#[derive(Debug)]
struct Look {
    checkup: Checkup,
    since: Stamp,
    pending: PendingLaunch,
}

impl Looks {
    /// The launches that wait for them.
    pub(super) fn pending_mut(&mut self) -> impl Iterator<Item = &mut PendingLaunch> {
        self.all.iter_mut().map(|look| &mut look.pending)
    }
}

impl Session {
    /// Starts a planned launch, after a look at its hosts where that is wanted.
    pub(super) fn look_and_start(&mut self, pending: PendingLaunch, planned: LaunchPlan, at: Stamp) {
        // the hosts that were looked at are not looked at again for another of their GPUs
        let is_known = |host: HostId| pending.looked.contains(&host);
        if pending.request.on_red == OnRed::Unasked || planned.spec.hosts().into_iter().all(is_known) {
            return self.start_pending(pending, planned, at);
        }
        let number = FIRST + self.looks.begun;
        self.looks.begun += 1;
        let mut checkup = self.checkup(number, &planned);
        self.check(at, checkup.questions());
        self.looks.all.push(Look { checkup, since: at, pending });
        self.end_looks(at);
    }

    /// What the hosts file says of how ssh reaches the hosts.
    pub fn contexts(&self) -> Contexts {
        contexts(&self.hosts)
    }

    /// A look for what a plan rests on, of which nothing is asked yet.
    pub fn checkup(&self, number: u64, planned: &LaunchPlan) -> Checkup {
        let hosts = planned.spec.hosts();
        let checks = needs::checks(&planned.spec, &planned.hosts);
        let paths = needs::paths(&planned.spec, &planned.hosts);
        let given = needs::given(&planned.hosts);
        let checkup = Checkup::for_launch(number, hosts.iter().cloned(), &checks).comparing(paths);
        let image = needs::image(&planned.spec, &planned.hosts);
        let mut runs = needs::programs(&planned.spec, &planned.hosts);
        if let Some(sync) = &planned.spec.options.sync {
            gist::add(sync, &planned.spec.command, &mut runs);
        }
        let inside = needs::in_image(&planned.spec, &planned.hosts);
        let checkup = checkup.running(runs).in_image(image).looking_into(inside);
        let checkup = checkup.reached_as(&self.contexts()).giving(given);
        let checkup = checkup.working_in(needs::workdirs(&planned.hosts));
        let controller = needs::controller(&planned.spec, &planned.hosts);
        let checkup = checkup.using(needs::gpus(&planned.spec)).controlled_by(controller);
        let mut checkup = checkup.taking(needs::ports(&planned.spec, &planned.hosts));
        for host in &hosts {
            let state = self.world.hosts.get(host);
            match state.and_then(|state| state.info.clone()) {
                Some(info) => checkup.is_up(host, info),
                None => checkup.is_down(host, "it has not told its facts".to_owned()),
            }
            if let Some(state) = state
                && let Some((at, sample)) = &state.sample
            {
                checkup.sampled(host, sample);
                checkup.knows_events(host, &state.gpu_events, *at);
            }
        }
        checkup
    }

    /// What a check has found: of a look of a launch, or of one from outside.
    pub(super) fn checked(&mut self, at: Stamp, host: HostId, told: Checked) {
        if told.ask < FIRST {
            return self.outputs.push_back(Output::Checked(host, told));
        }
        // one that is over takes nothing more
        if let Some(look) = self.looks.all.iter_mut().find(|look| look.checkup.number() == told.ask) {
            look.checkup.told(&host, told);
            let questions = look.checkup.questions();
            self.check(at, questions);
            self.end_looks(at);
        }
    }

    /// A host that is lost tells nothing more: the start itself will say so.
    pub(super) fn look_went_on_without(&mut self, at: Stamp, host: &HostId, state: &LinkState) {
        let mut is_lost = false;
        for look in &mut self.looks.all {
            if look.checkup.hosts().any(|(one, _)| one == host) {
                is_lost |= look.checkup.link_changed(host, state);
            }
        }
        if is_lost {
            self.end_looks(at);
        }
    }

    /// Looks that have taken too long go on with what they have.
    pub(super) fn end_late_looks(&mut self, now: Stamp) {
        let mut more = Vec::new();
        for look in &mut self.looks.all {
            let gone = now.micros_since(look.since);
            if gone > MEETING_US && look.checkup.awaits_doors() {
                look.checkup.go_on_without_doors();
                more.extend(look.checkup.questions());
            }
            if gone > PATIENCE_US {
                look.checkup.give_up(&format!("no answer within {} s", PATIENCE_US / 1_000_000));
            }
        }
        self.check(now, more);
        self.end_looks(now);
    }

    fn end_looks(&mut self, at: Stamp) {
        let is_over = |look: &mut Look| look.checkup.is_over();
        for look in self.looks.all.extract_if(.., is_over).collect::<Vec<_>>() {
            self.end_look(look, at);
        }
    }

    fn end_look(&mut self, look: Look, at: Stamp) {
        let Look { checkup, mut pending, .. } = look;
        let matrix = of_launch(checkup.matrix());
        if let (Some(red), OnRed::Refuse) = (red(&matrix), pending.request.on_red) {
            let reason = format!("nothing was started: {red}");
            return self.launch_failed(pending, LaunchError::new(LaunchFault::Unfit, reason));
        }
        for Group { row, verdict, hosts } in matrix.rows.iter().flat_map(|row| groups(&matrix, row)) {
            if verdict.mark == Mark::Bad {
                let text =
                    format!("--force ignores {} of {}: {}", row.check, names(&hosts), verdict.evidence);
                self.outputs.push_back(Output::Remark(text));
            }
        }
        // who has which GPU may be another by now
        pending.looked.extend(checkup.hosts().map(|(host, _)| host.clone()));
        self.try_launch(pending, at);
    }

    /// Which checks of which hosts launches wait for.
    pub fn launches_look_for(&self) -> Vec<String> {
        let due = |look: &Look| {
            let (hosts, checks) = look.checkup.due();
            let hosts: Vec<&str> = hosts.iter().map(|host| host.as_str()).collect();
            format!("{} of {}", checks.join(", "), hosts.join(", "))
        };
        self.looks.all.iter().map(due).collect()
    }

    /// Forgets the launches that wait for a look.
    pub(super) fn forget_looks(&mut self) {
        for look in std::mem::take(&mut self.looks.all) {
            self.leave_queue(look.pending.queue_ticket);
        }
    }
}

/// What keeps a launch from starting, if anything does.
pub fn red(matrix: &Matrix) -> Option<String> {
    let count = matrix.checks(Mark::Bad);
    let are = if count == 1 { "is" } else { "are" };
    (count > 0).then(|| {
        let (count, red) = (counted(count, "check"), troubles(matrix, Mark::Bad));
        format!("{count} of the hosts {are} red; --force starts it all the same\n{}", red.trim_end())
    })
}

/// What it means for a launch, without whether hosts are reached, which is told by the plan: red is what keeps it from starting.
pub fn of_launch(mut matrix: Matrix) -> Matrix {
    matrix.rows.retain(|row| row.check != CONNECTION);
    for verdict in matrix.rows.iter_mut().flat_map(|row| row.verdicts.values_mut()) {
        verdict.mark = verdict.for_launch();
    }
    matrix
}
