//! What is wrong with a GPU now: what its values say and what has happened to it, unless that was acknowledged.

use std::collections::BTreeMap;

use crate::domain::alerts::{Alert, AlertKind};
use crate::domain::gpu::event::{SeenEvent, all_faults};
use crate::domain::gpu::health::Fault;
use crate::domain::gpu::{GpuInfo, GpuSample};
use crate::domain::ids::GpuUuid;
use crate::domain::time::Stamp;
use crate::domain::world::HostState;
use crate::tui::core::{Effect, Level};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::RowId;

/// Up to when the events of a GPU were acknowledged.
pub type Acknowledged = BTreeMap<GpuUuid, Stamp>;

/// What is said of a GPU that has fallen off the bus, where that was acknowledged.
pub(super) const OFF_BUS: &str = "off bus";

/// All that is wrong and not acknowledged, the worst first.
pub(super) fn faults(model: &Model, state: &HostState, info: &GpuInfo, sample: &GpuSample) -> Vec<Fault> {
    let acknowledged = model.ui.acknowledged.get(&info.uuid).copied();
    all_faults(Some((&state.gpu_events, model.moment())), info, sample, acknowledged)
}

/// Whether an alert goes on and was not acknowledged: the same XID error again is another one.
pub(super) fn is_open(model: &Model, alert: &Alert) -> bool {
    alert.is_active() && !is_acknowledged(model, alert)
}

/// Whether an alert that goes on is of an XID error that was acknowledged.
fn is_acknowledged(model: &Model, alert: &Alert) -> bool {
    let known = || {
        let state = model.world.hosts.get(alert.place.host.as_ref()?)?;
        let gpu = state.info.as_ref()?.gpus.iter().find(|gpu| Some(gpu.index) == alert.place.gpu)?;
        let until = model.ui.acknowledged.get(&gpu.uuid)?;
        let is_it = |seen: &&SeenEvent| alert.words.starts_with(&format!("{}: ", seen.event.what.short()));
        Some(state.gpu_events.of(&gpu.uuid).find(is_it)?.last <= *until)
    };
    alert.kind == AlertKind::Xid && alert.is_active() && known().unwrap_or_default()
}

/// Acknowledges what has happened to the GPU of a row, or to all of a host: it is no fault any more.
pub(super) fn acknowledge(model: &mut Model, row: Option<&RowId>) -> Vec<Effect> {
    let Some(row) = row else { return Vec::new() };
    let Some(state) = model.world.hosts.get(row.host()) else { return Vec::new() };
    let is_meant = |uuid: &GpuUuid| match row {
        RowId::Gpu(_, of, _) => of == uuid,
        _ => true,
    };
    let now = model.moment();
    let new: Acknowledged = state
        .gpu_events
        .newest()
        .filter(|seen| is_meant(&seen.event.uuid))
        .map(|seen| (seen.event.uuid.clone(), now.max(seen.last)))
        .collect();
    let text = match new.len() {
        0 => "no event of a GPU to acknowledge here".to_owned(),
        1 => "the events of 1 GPU are acknowledged".to_owned(),
        count => format!("the events of {count} GPUs are acknowledged"),
    };
    let effect = (!new.is_empty()).then(|| {
        for (uuid, at) in new {
            let known = model.ui.acknowledged.entry(uuid).or_insert(at);
            *known = at.max(*known);
        }
        Effect::Acknowledge(model.ui.acknowledged.clone())
    });
    model.notice(Level::Info, text);
    effect.into_iter().collect()
}
