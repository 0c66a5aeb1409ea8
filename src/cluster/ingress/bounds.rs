//! How long the texts and lists of an agent's messages may be. What is never sent back to it may be cut; what its host is known
//! by may not, and is short where it is made.

use crate::domain::collectives::{HostCollectives, PROCESSES};
use crate::domain::run::RankExit;
use crate::domain::standstill::StalledPhase;
use crate::domain::trace::TraceStage;
use crate::domain::{plausible, preflight};
use crate::wire::image::ImageState;
use crate::wire::mesh::MeshTold;
use crate::wire::message::FromAgent;
use crate::wire::sync::SyncState;

/// How long a note of a host about a run and its kind may be, in characters.
const NOTE_TEXT: usize = 2000;
const NOTE_WHAT: usize = 40;
/// Characters of a version, and of a file's name.
const VERSION: usize = 64;
const NAME: usize = 256;
/// Processes of a host that are traced or tell where they are, and characters of what one of them tells.
const LIST: usize = 4096;
const STACKS: usize = 256 << 10;
/// Groups of collectives of a process, and calls of a group: what an agent keeps of a dump.
const GROUPS: usize = 32;
const CALLS: usize = 18;
/// Things that NCCL says of its communicators.
const COMMUNICATORS: usize = 64;
/// Sentences about a folder that was copied.
const SENTENCES: usize = 64;
/// Files that setting up a mesh changes: an agent names six at most. Lines of one of them: a host has six in the configuration and
/// one a key among the known hosts. Bytes of a public key.
const CHANGES: usize = 32;
const LINES: usize = 16 << 10;
const KEY: usize = 4096;

/// Takes out of a message what can't be.
pub(super) fn bound(message: &mut FromAgent) {
    match message {
        FromAgent::Hello(hello) => {
            cut(&mut hello.version, VERSION);
            cut(&mut hello.build, NAME);
        }
        FromAgent::Info(info) => plausible::bound_info(info),
        FromAgent::Sample(sampled) => plausible::bound_sample(&mut sampled.sample),
        FromAgent::Leases(leases) => plausible::bound_leases(leases),
        FromAgent::GpuEvents(told) => {
            told.events.iter_mut().for_each(|event| plausible::bound_uuid(&mut event.uuid));
        }
        FromAgent::Noted(noted) => {
            cut(&mut noted.note.text, NOTE_TEXT);
            cut(&mut noted.note.what, NOTE_WHAT);
        }
        FromAgent::Refused(refused) => plausible::bound_text(&mut refused.reason),
        FromAgent::Prepared(prepared) => prepared.ports.truncate(LIST),
        FromAgent::RankExited(exited) => bound_exit(&mut exited.exit),
        FromAgent::Stands(stands) => bound_standing(&mut stands.standing),
        FromAgent::Collectives(collectives) => bound_collectives(&mut collectives.told),
        FromAgent::Stacks(stacks) => {
            stacks.why.iter_mut().for_each(plausible::bound_text);
            stacks.of.truncate(LIST);
            for process in &mut stacks.of {
                cut(&mut process.text, STACKS);
                process.lacks.iter_mut().for_each(plausible::bound_text);
                process.standing.iter_mut().for_each(bound_standing);
            }
            bound_collectives(&mut stacks.collectives);
        }
        FromAgent::Traces(traces) => {
            traces.fault.iter_mut().for_each(plausible::bound_text);
            traces.processes.truncate(LIST);
            for process in &mut traces.processes {
                if let TraceStage::Failed { why } = &mut process.stage {
                    plausible::bound_text(why);
                }
            }
        }
        FromAgent::Runs(runs) => {
            for share in &mut runs.shares {
                cut(&mut share.name, NAME);
                share.stop.iter_mut().for_each(plausible::bound_text);
                share.exits.values_mut().for_each(bound_exit);
            }
        }
        FromAgent::Forgotten(told) => told.why.iter_mut().for_each(plausible::bound_text),
        // what it found is judged by its check alone, which bounds what it says
        FromAgent::Checked(told) => told.why.iter_mut().for_each(plausible::bound_text),
        FromAgent::Preflight(told) => preflight::bound(&mut told.findings),
        FromAgent::Signal(told) => plausible::bound_signal(&mut told.answer),
        FromAgent::Mesh(told) => bound_mesh(told),
        FromAgent::Sync(told) => match &mut told.state {
            SyncState::Present { notes, .. } => {
                notes.truncate(SENTENCES);
                notes.iter_mut().for_each(plausible::bound_text);
            }
            SyncState::Refused { reason, .. } => plausible::bound_text(reason),
            SyncState::Waiting | SyncState::Wanted | SyncState::Missing { .. } => {}
        },
        FromAgent::Image(told) => match &mut told.state {
            ImageState::Refused { reason, .. } => plausible::bound_text(reason),
            ImageState::Wanted { engine, held, .. } => {
                cut(engine, NAME);
                held.truncate(LIST);
            }
            ImageState::Waiting | ImageState::Present { .. } => {}
        },
        // numbers alone, or bytes that were counted: what is in samples is bounded where they are unpacked
        FromAgent::Pong(_)
        | FromAgent::Started(_)
        | FromAgent::RankStarted(_)
        | FromAgent::Written(_)
        | FromAgent::Chunk(_)
        | FromAgent::Gap(_)
        | FromAgent::Finished(_)
        | FromAgent::TracePiece(_)
        | FromAgent::PastSamples(_)
        | FromAgent::BlobsTaken(_) => {}
    }
}

fn bound_mesh(told: &mut MeshTold) {
    match told {
        MeshTold::Seen(seen) => {
            // what is cut would name another mesh, or be no key
            seen.meshes.retain(|mesh| mesh.id.len() <= NAME);
            seen.meshes.truncate(LIST);
            for mesh in &mut seen.meshes {
                mesh.public.take_if(|public| public.len() > KEY);
            }
            seen.problem.iter_mut().for_each(plausible::bound_text);
        }
        MeshTold::Done(done) => {
            done.changes.truncate(CHANGES);
            for change in &mut done.changes {
                cut(&mut change.path, NAME);
                cut(&mut change.what, NAME);
                change.lines.truncate(LINES);
                change.lines.iter_mut().for_each(plausible::bound_text);
            }
            done.problem.iter_mut().for_each(plausible::bound_text);
        }
        MeshTold::Tried(tried) => {
            tried.results.truncate(LIST);
            for (name, fault) in &mut tried.results {
                cut(name, NAME);
                fault.iter_mut().for_each(plausible::bound_text);
            }
        }
    }
}

fn bound_exit(exit: &mut RankExit) {
    exit.error.iter_mut().chain(&mut exit.cause).for_each(plausible::bound_text);
}

fn bound_standing(standing: &mut StalledPhase) {
    standing.at.iter_mut().for_each(|at| cut(&mut at.file, NAME));
}

fn bound_collectives(told: &mut HostCollectives) {
    told.processes.truncate(PROCESSES);
    for process in &mut told.processes {
        process.groups.truncate(GROUPS);
        process.groups.iter_mut().for_each(|group| group.calls.truncate(CALLS));
    }
    if let Some(answer) = &mut told.ras {
        answer.differences.truncate(COMMUNICATORS);
        answer.silent.truncate(COMMUNICATORS);
    }
    told.texts_mut().for_each(plausible::bound_text);
}

fn cut(text: &mut String, most: usize) {
    if let Some((at, _)) = text.char_indices().nth(most) {
        text.truncate(at);
    }
}
