//! What may follow what is typed: one suggestion, dim behind the cursor, that the right arrow takes. From the launches
//! before, the recipes, the hosts and their free GPUs, and the files of this machine. Pure.

use crate::domain::ids::HostId;
use crate::domain::occupancy::Occupancy;
use crate::domain::run::RunSpec;
use crate::launch::words::join;
use crate::tui::screens::Model;
use crate::tui::screens::launch::{Field, paths, reading, surroundings};

/// The rest of a text that begins as the focused field does up to the cursor, which stands at its end.
pub fn suggestion(model: &Model) -> Option<String> {
    let form = &model.ui.launch;
    let field = form.focus;
    let input = form.inputs.get(field as usize)?;
    let typed = input.value();
    let untouched = field == Field::Command && form.untouched;
    if field.is_choice() || untouched || typed.is_empty() || input.cursor() < typed.chars().count() {
        return None;
    }
    let rest = |whole: String| whole.strip_prefix(typed).filter(|rest| !rest.is_empty()).map(str::to_owned);
    match field {
        Field::On => slots(model, typed),
        Field::Command => {
            let recipes = model.recipes.iter().map(|recipe| join(&recipe.command));
            let before = form.history.texts(field).chain(past(model, field)).chain(recipes).find_map(rest);
            before.or_else(|| paths::suggestion(model))
        }
        _ => {
            let before = form.history.texts(field).chain(past(model, field)).find_map(rest);
            before.or_else(|| paths::suggestion(model))
        }
    }
}

/// What recorded runs have in a field, newest first.
fn past(model: &Model, field: Field) -> impl Iterator<Item = String> {
    let home = &model.here.home;
    model.recordings.iter().filter_map(move |recording| said(&recording.spec, field, home))
}

fn said(spec: &RunSpec, field: Field, home: &str) -> Option<String> {
    match field {
        Field::Command => Some(join(&spec.command)),
        Field::Name => Some(spec.name.clone()),
        Field::Workdir => spec.workdir.clone(),
        Field::Interface => spec.options.interface.clone(),
        Field::Gpus => reading::gpus_text(&spec.options),
        Field::Env if !spec.env.is_empty() => {
            let pairs: Vec<String> = spec.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
            Some(join(&pairs))
        }
        _ => surroundings::text(&spec.options, field, home),
    }
}

/// Of a host's name its rest; behind `gpu-a:` the numbers of its free GPUs.
fn slots(model: &Model, typed: &str) -> Option<String> {
    let by_count = typed.trim_start().starts_with("-H");
    let begins = typed.rfind([' ', ';', ',']).map_or(0, |at| at + 1);
    let word = typed.get(begins..)?;
    // in a list of slots a comma goes on with numbers
    let numbers = !by_count && typed.get(..begins)?.ends_with(',');
    if word.is_empty() || numbers {
        return None;
    }
    if let Some((host, "")) = word.split_once(':') {
        let host = model.host_order().into_iter().find(|id| id.as_str() == host)?;
        let free = free_gpus(model, host);
        let text = if by_count {
            free.len().to_string()
        } else {
            free.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
        };
        return (!free.is_empty()).then_some(text);
    }
    let mut names = model.host_order().into_iter().map(HostId::as_str);
    let whole = names.find(|name| name.starts_with(word) && *name != word);
    let whole =
        whole.or_else(|| model.host_order().into_iter().map(HostId::as_str).find(|name| *name == word))?;
    Some(format!("{}:", &whole[word.len()..]))
}

fn free_gpus(model: &Model, host: &HostId) -> Vec<u32> {
    let Some(state) = model.world.hosts.get(host) else { return Vec::new() };
    let Some(info) = state.info.as_ref() else { return Vec::new() };
    let sample = state.latest().map(|(_, sample)| sample);
    let free_memory = model.hosts.of(host).map(|entry| entry.free_memory);
    let is_free = |gpu: &&crate::domain::gpu::GpuInfo| {
        let live = sample.and_then(|sample| sample.gpus.iter().find(|live| live.index == gpu.index));
        Occupancy::of(gpu, state.leases.as_ref(), live, free_memory.unwrap_or_default())
            .unless_off_bus(state.is_off_bus(gpu, model.moment()))
            .is_free()
    };
    info.gpus.iter().filter(is_free).map(|gpu| gpu.index).collect()
}
