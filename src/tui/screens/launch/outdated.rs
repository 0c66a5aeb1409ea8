//! A plan rests on what the hosts told when it was made: where they have told something else since, it is made again, while
//! the one before stays on the screen. Pure.

use super::reading::Outcome;
use super::{preview, read};
use crate::domain::event::Event;
use crate::launch::plan::LaunchPlan;
use crate::tui::core::{Effect, Screen};
use crate::tui::screens::Model;

/// What of the form's plan is still true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outdated {
    /// Whether hosts have told something on which a plan rests since it was asked for.
    by_hosts: bool,
    /// Whether the plan that is being made takes the place of one that is shown.
    pub(super) asked_again: bool,
}

/// A host has told something.
pub(in crate::tui::screens) fn hear(model: &mut Model, event: &Event) {
    let form = &mut model.ui.launch;
    let changes_plans = match event {
        Event::LinkChanged { .. } | Event::HostDescribed { .. } | Event::LeasesTold { .. } => true,
        // who works on a GPU decides where nothing could be placed; a plan that stands is not moved about each second
        Event::HostSampled { .. } => matches!(form.plan, Some(Err(_))),
        _ => false,
    };
    form.outdated.by_hosts |= changes_plans && model.ui.screen == Screen::Launch;
}

/// Asks for the plan again where it is due: at most one question is on its way.
pub(in crate::tui::screens) fn ask_again(model: &mut Model) -> Vec<Effect> {
    let form = &model.ui.launch;
    let is_shown = model.ui.screen == Screen::Launch && form.plan.is_some() && !form.starting;
    if !form.outdated.by_hosts || !is_shown || form.asked > 0 {
        return Vec::new();
    }
    // a GPU that is named by its UUID is found once its host has told its GPUs, and how many ranks have room
    let Outcome::Request(request) = read(model).outcome else {
        // what it named is gone: the plan must not be started any more
        return preview(model);
    };
    let form = &mut model.ui.launch;
    form.outdated = Outdated { by_hosts: false, asked_again: true };
    form.request = Some((*request).clone());
    form.asked += 1;
    vec![Effect::Preview(*request)]
}

/// Whether two plans differ in nothing but the run's number and the moment.
pub(super) fn is_the_same(one: &LaunchPlan, other: &LaunchPlan) -> bool {
    one.spec.placements == other.spec.placements
        && (&one.rendezvous, &one.lease_order, &one.remarks)
            == (&other.rendezvous, &other.lease_order, &other.remarks)
}
